"""Counters by the names that PAPI and Linux give them: which there are, and what counts them here.

PAPI's presets are those of papi_avail (PAPI 5 to 7); the kernel's generic events those of
linux/perf_event.h. A preset without a generic event is counted by PAPI alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from advisor.meters.counters import Counters, NamedEvent

# Types of events in linux/perf_event.h; of a cache event the configuration is the cache, its
# operation << 8, its result << 16.
_HARDWARE, _SOFTWARE, _CACHE = 0, 1, 3
_MISS, _WRITE = 1 << 16, 1 << 8
_EVENTS: dict[str, tuple[int, int]] = {
    "cycles": (_HARDWARE, 0),
    "instructions": (_HARDWARE, 1),
    "cache-references": (_HARDWARE, 2),
    "cache-misses": (_HARDWARE, 3),
    "branches": (_HARDWARE, 4),
    "branch-misses": (_HARDWARE, 5),
    "ref-cycles": (_HARDWARE, 9),
    "L1-dcache-loads": (_CACHE, 0),
    "L1-dcache-load-misses": (_CACHE, _MISS),
    "L1-dcache-stores": (_CACHE, _WRITE),
    "L1-dcache-store-misses": (_CACHE, _WRITE | _MISS),
    "L1-icache-load-misses": (_CACHE, 1 | _MISS),
    "LLC-load-misses": (_CACHE, 2 | _MISS),
    "LLC-store-misses": (_CACHE, 2 | _WRITE | _MISS),
    "dTLB-load-misses": (_CACHE, 3 | _MISS),
    "iTLB-load-misses": (_CACHE, 4 | _MISS),
    "task-clock": (_SOFTWARE, 1),
    "page-faults": (_SOFTWARE, 2),
    "minor-faults": (_SOFTWARE, 5),
    "major-faults": (_SOFTWARE, 6),
}
"""Type and configuration by the name that perf gives an event."""
_PRESETS = {
    "PAPI_TOT_CYC": "cycles",
    "PAPI_TOT_INS": "instructions",
    "PAPI_REF_CYC": "ref-cycles",
    "PAPI_BR_INS": "branches",
    "PAPI_BR_MSP": "branch-misses",
    "PAPI_L3_TCA": "cache-references",
    "PAPI_L3_TCM": "cache-misses",
    "PAPI_L1_DCM": "L1-dcache-load-misses",
    "PAPI_L1_LDM": "L1-dcache-load-misses",
    "PAPI_L1_STM": "L1-dcache-store-misses",
    "PAPI_L1_ICM": "L1-icache-load-misses",
    "PAPI_L3_LDM": "LLC-load-misses",
    "PAPI_L3_STM": "LLC-store-misses",
    "PAPI_TLB_DM": "dTLB-load-misses",
    "PAPI_TLB_IM": "iTLB-load-misses",
    "PAPI_LD_INS": "L1-dcache-loads",
    "PAPI_SR_INS": "L1-dcache-stores",
}
_BY_PAPI_ALONE = frozenset(
    f"PAPI_{name}"
    for name in """
    L1_TCM L2_DCM L2_ICM L2_TCM L3_DCM L3_ICM CA_SNP CA_SHR CA_CLN CA_INV CA_ITV TLB_TL L2_LDM
    L2_STM BTAC_M PRF_DM L3_DCH TLB_SD CSR_FAL CSR_SUC CSR_TOT MEM_SCY MEM_RCY MEM_WCY STL_ICY
    FUL_ICY STL_CCY FUL_CCY HW_INT BR_UCN BR_CN BR_TKN BR_NTK BR_PRC FMA_INS TOT_IIS INT_INS FP_INS
    VEC_INS RES_STL FP_STAL LST_INS SYC_INS L1_DCH L2_DCH L1_DCA L2_DCA L3_DCA L1_DCR L2_DCR L3_DCR
    L1_DCW L2_DCW L3_DCW L1_ICH L2_ICH L3_ICH L1_ICA L2_ICA L3_ICA L1_ICR L2_ICR L3_ICR L1_ICW
    L2_ICW L3_ICW L1_TCH L2_TCH L3_TCH L1_TCA L2_TCA L1_TCR L2_TCR L3_TCR L1_TCW L2_TCW L3_TCW
    FML_INS FAD_INS FDV_INS FSQ_INS FNV_INS FP_OPS SP_OPS DP_OPS VEC_SP VEC_DP BRU_IDL FXU_IDL
    FPU_IDL LSU_IDL
    """.split()  # noqa: SIM905
)


def named_event(name: str) -> NamedEvent | None:
    """Return what counts a name here, None for a preset that PAPI alone counts.

    Raises ValueError for a name that neither PAPI nor Linux has.
    """
    plain = name.partition(":")[0]
    event = _EVENTS.get(_PRESETS.get(plain, plain))
    if event is not None:
        return NamedEvent(name, *event)
    if plain in _BY_PAPI_ALONE:
        return None
    raise ValueError(
        f"there is no counter {name}; known are PAPI's presets (papi_avail lists them) and "
        f"{', '.join(sorted(_EVENTS))}"
    )


@cache
def not_counted(names: Sequence[str]) -> dict[str, str]:
    """Return why counters cannot be counted on this machine, by name; empty when all can.

    Each is opened once for this process and closed. Raises ValueError as :func:`named_event`.
    """
    reasons: dict[str, str] = {}
    for name in names:
        event = named_event(name)
        if event is None:
            reasons[name] = "only PAPI knows which of the processor's events these are"
            continue
        counters = Counters(wanted=(event,))
        with counters:
            if not counters.opened:
                reasons[name] = counters.notes[-1].partition(": ")[2]
    return reasons
