/* A valgrind tool that keeps the access sites of a program without compiling it again.
 *
 * What is kept, and how, is in sites.h, the same as in a program built with "advisor cc". On top,
 * floating-point operations are counted per region, and the elements of SIMD accesses are guessed
 * from the arithmetic beside them. Built on the machine it runs on, from valgrind's own headers.
 */
#include "pub_tool_basics.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_clientstate.h"
#include "pub_tool_debuginfo.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_options.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_tooliface.h"
#include "requests.h"
#include "sites.h"

#define FIRST_SITES 1024

struct sites_table {
    uint64_t mask, used;
    struct site **site;
};

/* One memory access of one instruction; what it met last makes the next one quick. */
struct place {
    uint64_t pc;
    uint32_t size, element, write;
    struct site *site;
    const struct sites_table *in;
};

static struct thread {
    struct sites_table *table; /* of the region it is in */
    uint64_t interval;
    uint32_t region, number, depth;
    struct sites_table *of[REGIONS];
} *threads, *running; /* running: whose code is being executed */

static struct sites_file *file;
static const HChar *folder = "";
static Bool outside = True; /* whether to look outside of parallel regions too */
static Long bytes = 256 << 20;

static uint64_t sites_take(uint64_t wanted) {
    const uint64_t at = file->end;
    if (at + wanted > file->limit) return 0;
    file->end += wanted;
    return at;
}

/* ---- regions ------------------------------------------------------------------------------ */

static uint32_t region_of(uint64_t code) {
    uint32_t at = 0;
    while (at < file->regions && file->region[at].code != code) at++;
    if (at == REGIONS) return 0;
    if (at == file->regions) {
        file->region[at].code = code;
        file->regions++;
    }
    return at;
}

static void be_in(struct thread *thread, uint32_t region, uint64_t interval) {
    thread->region = region;
    thread->interval = interval;
    thread->table = NULL;
    if (region == 0 && !outside) return;
    if (!thread->of[region]) thread->of[region] = VG_(calloc)("table", 1, sizeof **thread->of);
    thread->table = thread->of[region];
}

static Bool request(ThreadId tid, UWord *word, UWord *answer) {
    struct thread *thread = &threads[tid];
    *answer = 0;
    switch (word[0]) {
    case REQUEST_FORK:
        *answer = thread->region ? thread->interval >> 16
                                 : ++file->region[region_of(word[1])].calls;
        return True;
    case REQUEST_ENTER: /* a region inside a region belongs to the outer one */
        if (!thread->depth++) be_in(thread, region_of(word[1]), word[2] << 16);
        return True;
    case REQUEST_LEAVE:
        if (!--thread->depth) be_in(thread, 0, 1 << 16);
        return True;
    case REQUEST_BARRIER:
        if (thread->depth && (thread->interval & 0xffff) != 0xffff) thread->interval++;
        return True;
    default:
        return False;
    }
}

static void starts(ThreadId tid, ULong blocks) {
    running = &threads[tid];
    if (!running->number) {
        running->number = (uint32_t)++file->threads;
        be_in(running, 0, 1 << 16);
    }
}

/* Its number may be given to another thread, which has sites of its own. Tables are not freed:
 * places remember where they were. */
static void thread_ends(ThreadId tid) {
    VG_(memset)(&threads[tid], 0, sizeof threads[tid]);
}

/* ---- accesses ----------------------------------------------------------------------------- */

#define PLACE(place, mask) (((place)->pc * 2 + (place)->write) * 0x9e3779b97f4a7c15ull >> 32 & (mask))

static void grow(struct sites_table *table) {
    const uint64_t places = table->site ? 4 * (table->mask + 1) : FIRST_SITES;
    struct site **site = VG_(calloc)("sites", places, sizeof *site);
    for (uint64_t i = 0; table->site && i <= table->mask; i++) {
        if (!table->site[i]) continue;
        uint64_t at = PLACE(table->site[i], places - 1);
        while (site[at]) at = (at + 1) & (places - 1);
        site[at] = table->site[i];
    }
    VG_(free)(table->site);
    table->site = site;
    table->mask = places - 1;
}

static struct site *seek(struct place *place, Addr address) {
    struct sites_table *table = running->table;
    if (!table->site || 4 * table->used > table->mask) grow(table);
    uint64_t at = PLACE(place, table->mask);
    for (; table->site[at]; at = (at + 1) & table->mask)
        if (table->site[at]->pc == place->pc && table->site[at]->write == place->write) {
            place->in = table;
            return place->site = table->site[at];
        }
    struct site *site = site_make(place->pc, running->region, running->number, place->size,
                                  place->element, place->write, running->interval, address);
    if (site) {
        table->site[at] = site;
        table->used++;
    } else
        file->lost++;
    return NULL;
}

static VG_REGPARM(2) void access(struct place *place, Addr address) {
    if (!running->table) return;
    struct site *site = place->in == running->table ? place->site : seek(place, address);
    if (site) site_touch(site, running->interval, address);
}

static VG_REGPARM(1) void computed(UWord operations) {
    file->region[running->region].flops += operations;
}

/* ---- instrumentation ---------------------------------------------------------------------- */

/* Floating-point operations of one VEX operation, and the bytes of what it works on. */
static UInt flops_of(IROp op, UInt *element) {
    switch (op) {
    case Iop_AddF64: case Iop_SubF64: case Iop_MulF64: case Iop_DivF64: case Iop_SqrtF64:
    case Iop_Add64F0x2: case Iop_Sub64F0x2: case Iop_Mul64F0x2: case Iop_Div64F0x2:
    case Iop_Sqrt64F0x2:
        *element = 8;
        return 1;
    case Iop_AddF32: case Iop_SubF32: case Iop_MulF32: case Iop_DivF32: case Iop_SqrtF32:
    case Iop_Add32F0x4: case Iop_Sub32F0x4: case Iop_Mul32F0x4: case Iop_Div32F0x4:
    case Iop_Sqrt32F0x4:
        *element = 4;
        return 1;
    case Iop_MAddF64: case Iop_MSubF64:
        *element = 8;
        return 2;
    case Iop_MAddF32: case Iop_MSubF32:
        *element = 4;
        return 2;
    case Iop_Add64Fx2: case Iop_Sub64Fx2: case Iop_Mul64Fx2: case Iop_Div64Fx2: case Iop_Sqrt64Fx2:
        *element = 8;
        return 2;
    case Iop_Add32Fx4: case Iop_Sub32Fx4: case Iop_Mul32Fx4: case Iop_Div32Fx4: case Iop_Sqrt32Fx4:
        *element = 4;
        return 4;
    case Iop_Add64Fx4: case Iop_Sub64Fx4: case Iop_Mul64Fx4: case Iop_Div64Fx4: case Iop_Sqrt64Fx4:
        *element = 8;
        return 4;
    case Iop_Add32Fx8: case Iop_Sub32Fx8: case Iop_Mul32Fx8: case Iop_Div32Fx8: case Iop_Sqrt32Fx8:
        *element = 4;
        return 8;
    case Iop_Add32x4: case Iop_Sub32x4: case Iop_Mul32x4: case Iop_Add32x8: case Iop_Sub32x8:
    case Iop_Mul32x8:
        *element = 4;
        return 0;
    default:
        return 0;
    }
}

static UInt flops_in(const IRExpr *e, UInt *element) {
    switch (e->tag) {
    case Iex_Qop:
        return flops_of(e->Iex.Qop.details->op, element);
    case Iex_Triop:
        return flops_of(e->Iex.Triop.details->op, element);
    case Iex_Binop:
        return flops_of(e->Iex.Binop.op, element);
    case Iex_Unop:
        return flops_of(e->Iex.Unop.op, element);
    default:
        return 0;
    }
}

static void call(IRSB *out, IRExpr *guard, Int count, const HChar *name, void *helper,
                 IRExpr **arguments) {
    IRDirty *dirty =
        unsafeIRDirty_0_N(count, name, VG_(fnptr_to_fnentry)(helper), arguments);
    if (guard) dirty->guard = guard;
    addStmtToIRSB(out, IRStmt_Dirty(dirty));
}

static void note(IRSB *out, Addr pc, IRExpr *address, IRExpr *guard, Int size, UInt element,
                 UInt write) {
    struct place *place = VG_(calloc)("place", 1, sizeof *place);
    if (size <= 0) return;
    place->pc = pc + 1; /* as a return address would be */
    place->size = (uint32_t)size;
    place->element = (uint32_t)size > 8 ? element : (uint32_t)size;
    place->write = write;
    call(out, guard, 2, "access", access, mkIRExprVec_2(mkIRExpr_HWord((HWord)place), address));
}

static IRSB *instrument(VgCallbackClosure *closure, IRSB *in, const VexGuestLayout *layout,
                        const VexGuestExtents *extents, const VexArchInfo *host, IRType guest_word,
                        IRType host_word) {
    IRSB *out = deepCopyIRSBExceptStmts(in);
    UInt element = 8, flops = 0;
    Addr pc = 0;
    Int i = 0;
    for (Int k = 0; k < in->stmts_used; k++)
        if (in->stmts[k] && in->stmts[k]->tag == Ist_WrTmp)
            flops += flops_in(in->stmts[k]->Ist.WrTmp.data, &element);
    for (; i < in->stmts_used && in->stmts[i]->tag != Ist_IMark; i++) addStmtToIRSB(out, in->stmts[i]);
    if (flops) call(out, NULL, 1, "computed", computed, mkIRExprVec_1(mkIRExpr_HWord(flops)));
    for (; i < in->stmts_used; i++) {
        IRStmt *st = in->stmts[i];
        if (!st || st->tag == Ist_NoOp) continue;
        switch (st->tag) {
        case Ist_IMark:
            pc = st->Ist.IMark.addr;
            break;
        case Ist_WrTmp:
            if (st->Ist.WrTmp.data->tag == Iex_Load)
                note(out, pc, st->Ist.WrTmp.data->Iex.Load.addr, NULL,
                     sizeofIRType(st->Ist.WrTmp.data->Iex.Load.ty), element, 0);
            break;
        case Ist_Store:
            note(out, pc, st->Ist.Store.addr, NULL,
                 sizeofIRType(typeOfIRExpr(in->tyenv, st->Ist.Store.data)), element, 1);
            break;
        case Ist_StoreG: {
            IRStoreG *s = st->Ist.StoreG.details;
            note(out, pc, s->addr, s->guard, sizeofIRType(typeOfIRExpr(in->tyenv, s->data)),
                 element, 1);
            break;
        }
        case Ist_LoadG: {
            IRLoadG *l = st->Ist.LoadG.details;
            IRType loaded = Ity_INVALID, widened = Ity_INVALID;
            typeOfIRLoadGOp(l->cvt, &widened, &loaded);
            note(out, pc, l->addr, l->guard, sizeofIRType(loaded), element, 0);
            break;
        }
        case Ist_CAS:
            note(out, pc, st->Ist.CAS.details->addr, NULL,
                 sizeofIRType(typeOfIRExpr(in->tyenv, st->Ist.CAS.details->dataLo)), element, 1);
            break;
        case Ist_LLSC:
            note(out, pc, st->Ist.LLSC.addr, NULL,
                 sizeofIRType(st->Ist.LLSC.storedata
                                  ? typeOfIRExpr(in->tyenv, st->Ist.LLSC.storedata)
                                  : typeOfIRTemp(in->tyenv, st->Ist.LLSC.result)),
                 element, st->Ist.LLSC.storedata != NULL);
            break;
        default:
            break;
        }
        addStmtToIRSB(out, st);
    }
    return out;
}

/* ---- begin and end ------------------------------------------------------------------------ */

static Bool option(const HChar *arg) {
    if VG_STR_CLO (arg, "--folder", folder) {
    } else if VG_BOOL_CLO (arg, "--outside", outside) {
    } else if VG_INT_CLO (arg, "--bytes", bytes) {
    } else
        return False;
    return True;
}

static void usage(void) {
    VG_(printf)("    --folder=DIR        where to leave the sites found\n"
                "    --outside=no|yes    also outside of parallel regions [yes]\n"
                "    --bytes=N           most to keep [256 MB]\n");
}

static void debug_usage(void) {}

static void begin(void) {
    threads = VG_(calloc)("threads", VG_N_THREADS, sizeof *threads);
    running = threads;
    file = VG_(am_shadow_alloc)((SizeT)bytes);
    if (!file) VG_(exit)(1);
    sites_base = (char *)file;
    file->magic = SITES_MAGIC;
    file->size = file->end = sizeof *file;
    file->limit = (uint64_t)bytes;
    file->pid = (uint64_t)VG_(getpid)();
    file->regions = 1;
    file->counts_flops = 1;
    const HChar *exe = VG_(args_the_exename);
    VG_(snprintf)(file->exe, sizeof file->exe, "%s%s%s", exe[0] == '/' ? "" : VG_(get_startup_wd)(),
                  exe[0] == '/' ? "" : "/", exe);
}

static void end(Int code) {
    HChar path[4096];
    const DebugInfo *from = NULL;
    while ((from = VG_(next_DebugInfo)(from)) && file->modules < MODULES) {
        struct module *module = &file->module[file->modules++];
        module->base = (uint64_t)VG_(DebugInfo_get_text_bias)(from);
        module->lo = VG_(DebugInfo_get_text_avma)(from);
        module->hi = module->lo + VG_(DebugInfo_get_text_size)(from);
        VG_(snprintf)(module->path, sizeof module->path, "%s", VG_(DebugInfo_get_filename)(from));
    }
    file->complete = 1;
    VG_(snprintf)(path, sizeof path, "%s/%d.0", folder, VG_(getpid)());
    const SysRes opened = VG_(open)(path, VKI_O_CREAT | VKI_O_TRUNC | VKI_O_WRONLY, 0600);
    if (sr_isError(opened)) return;
    for (uint64_t at = 0; at < file->end;) {
        const uint64_t left = file->end - at;
        const Int wrote = VG_(write)((Int)sr_Res(opened), sites_base + at,
                                     left > 1 << 20 ? 1 << 20 : (Int)left);
        if (wrote <= 0) break;
        at += (uint64_t)wrote;
    }
    VG_(close)((Int)sr_Res(opened));
}

static void prepare(void) {
    VG_(details_name)("advisor");
    VG_(details_version)(NULL);
    VG_(details_description)("memory streams of parallel regions");
    VG_(details_copyright_author)("");
    VG_(details_bug_reports_to)("");
    VG_(basic_tool_funcs)(begin, instrument, end);
    VG_(needs_client_requests)(request);
    VG_(needs_command_line_options)(option, usage, debug_usage);
    VG_(track_start_client_code)(starts);
    VG_(track_pre_thread_ll_exit)(thread_ends);
}

VG_DETERMINE_INTERFACE_VERSION(prepare)
