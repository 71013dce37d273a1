-- cli_filter at a step: srun inside a job that carries a plan of what its steps get.
--
-- At submission a script is only read; here program, options and environment are known. So the
-- daemon puts a plan into the job's environment (docs/design.md has its form), and here the
-- program is looked up in it: nobody is asked, and what is set holds for this step alone. The
-- plan may be cut, forged or another job's: whatever is not just as it says runs as written.

local use = ...
local config, system = use("config"), use("system")

local MAX_PLAN, MAX_NAME = 2000, 200
local HEX = "[0-9a-f]"
local PLAN = "^1 (" .. HEX:rep(16) .. ") (%d+) (%d+) (%d+)( .+) (" .. HEX:rep(8) .. ")$"
local ENTRY = "^(" .. HEX:rep(8) .. "),(%d+),(%d+),([u-]),(%d+),(%d+)(.*)$"
local OMP = "OMP_NUM_THREADS"

local M = {}

-- The hash of a plan, of a program's identity and of its build: exact in doubles, also of four
-- bytes at once (33^4 times the modulus is less than 2^53).
function M.hash(text)
  local value, byte, rest = 5381, text.byte, #text % 4
  for i = 1, #text - rest, 4 do
    local a, b, c, d = byte(text, i, i + 3)
    value = (value * 1185921 + a * 35937 + b * 1089 + c * 33 + d) % 4294967291
  end
  for i = #text - rest + 1, #text do value = (value * 33 + byte(text, i)) % 4294967291 end
  return ("%08x"):format(value)
end

-- The number in a text of so many digits at most; nil for another text.
local function number(text, most)
  return #text <= most and (text == "0" or not text:find("^0")) and tonumber(text) or nil
end

local function count(text)
  local value = number(text, 7)
  return value and value > 0 and value or nil
end

local function read_entry(text)
  local key, ranks, threads, unset, new, khz, more = text:match(ENTRY)
  if not key then return nil end
  local variable, build = more:match("^,([A-Z0-9_]*)(.*)$")
  local entry = {
    key = key, ranks = count(ranks), threads = count(threads), unset = unset == "u",
    new = number(new, 7), khz = number(khz, 8), variable = OMP,
  }
  if not entry.ranks or not entry.threads or not entry.new or not entry.khz then return nil end
  if entry.new >= entry.threads or entry.khz > 0 and entry.khz < 1000 then return nil end
  if not variable then return more == "" and entry or nil end
  if variable ~= "" then
    if variable == OMP or #variable > 64 or not variable:find("^[A-Z]") then return nil end
    entry.variable = variable
  end
  entry.build = build:match("^,(" .. HEX:rep(8) .. ")$")
  if not entry.build and (build ~= "" or variable == "") then return nil end
  return entry
end

-- What a plan says of the program that has these keys (of all, without keys), or nil and why it is
-- none. One that does not have them is looked through no further: most steps are none of the plan's.
function M.read(text, key, any)
  if #text > MAX_PLAN then return nil, "the plan is too long" end
  local decision, uid, nodes, cpus, words, sum = text:match(PLAN)
  local plan = decision and { decision = decision, uid = number(uid, 10), nodes = count(nodes), cpus = count(cpus) }
  if not plan or not plan.uid or not plan.nodes or not plan.cpus then return nil, "the plan is malformed" end
  local function has(name) return words:find(" " .. name .. ",", 1, true) end
  if key and not has(key) and not has(any) then return plan end
  if M.hash(text:sub(1, -9)) ~= sum then return nil, "the plan is cut or changed" end
  for word in words:gmatch(" ([^ ]*)") do
    local name = key and word:sub(1, #key)
    if name == key or name == any then
      local entry = read_entry(word)
      if not entry then return nil, "the plan is malformed" end
      plan[#plan + 1] = entry
    end
  end
  return plan
end

-- A name, or arguments, as advisor/core/recognise.py cleans them; nil where nothing is left, or
-- where there is more than ASCII.
local function clean(text)
  if text:find("[^ -~]") then return nil end
  text = text:gsub(" +", " "):gsub("^ ", ""):gsub("[^%w_.+:=,@%%/%- ]", "_"):sub(1, MAX_NAME)
  text = text:gsub(" $", "")
  return text ~= "" and text or nil
end

-- Where the words behind those of a container or an interpreter begin; nil where that is unclear.
local function behind(argv, at, front)
  local function is(kind, word)
    return not word:find(" ", 1, true) and front[kind]:find(" " .. word .. " ", 1, true)
  end
  local function is_option(word)
    local long = word:match("^(%-%-[^=]*)=")
    if is("flags", word) or long and (is("flags", long) or is("values", long)) then return true end
    if is("values", word:sub(1, 2)) then return true end
    for letter in word:sub(2):gmatch(".") do
      if not letter:find("%a") or not is("flags", "-" .. letter) then return false end
    end
    return word ~= "-"
  end
  if front.verb then
    while argv[at] and is("flags", argv[at]) do at = at + 1 end
    if argv[at] ~= front.verb then return nil end
    at = at + 1
  end
  while argv[at] and argv[at]:sub(1, 1) == "-" do
    if is("values", argv[at]) then at = at + 1 elseif not is_option(argv[at]) then return nil end
    at = at + 1
  end
  at = front.image and at + 1 or at
  return argv[at] and argv[at]:find("^[^-]") and at or nil
end

-- The file that a command runs, the keys of that program with these and with any arguments, and
-- whether it is inside of a container or an environment. advisor/core/wrappers.py reads the same.
function M.program_of(argv)
  local first, inside, interpreted = 1, false, false
  while not interpreted do
    local name = argv[first]:match("[^/]*$")
    local front = use("wrappers")[name:find("^python[%d.]+$") and "python" or name]
    local at = front and behind(argv, first + 1, front)
    if not at then break end
    first, inside, interpreted = at, inside or front.inside, front.interpreter
  end
  local file, name = argv[first], argv[first]:match("[^/]*$")
  if interpreted and not file:find("/", 1, true) then file = "./" .. file end
  local arguments = table.concat(argv, " ", first + 1)
  name = clean(name)
  if not name or arguments:find("[^ -~]") then return nil end
  arguments = clean(arguments)
  return file, M.hash(arguments and name .. " " .. arguments or name), M.hash(name .. " *"), inside
end

-- Why the plan is not of this job, or nil.
local function of_another(plan)
  local stamp = os.getenv("ADVISOR_STAMP") or os.getenv("SLURM_ADVISOR_STAMP") or ""
  local decision = stamp:match('^advisor:{"v":1,"id":"(%x+)"') or os.getenv("ADVISOR_DECISION")
  if plan.decision ~= decision then return "the plan is of another decision" end
  local owner = os.getenv("SLURM_JOB_UID") -- salloc sets none
  if system.uid() ~= plan.uid or owner and tonumber(owner) ~= plan.uid then
    return "the plan is another user's"
  end
  local each = ("%d"):format(plan.cpus) .. (plan.nodes > 1 and ("(x%d)"):format(plan.nodes) or "")
  if tonumber(os.getenv("SLURM_JOB_NUM_NODES") or "") ~= plan.nodes
    or os.getenv("SLURM_JOB_CPUS_PER_NODE") ~= each then
    return "the plan is of a job with other nodes"
  end
end

-- How many tasks a step has that takes all of its job's nodes with all their CPUs; nil where it
-- does not, and where that is not clear. `asked`: what srun was told, by options or variables.
local function ranks_of(asked, plan)
  if asked.exact or asked.exclusive or asked.overlap then return nil end
  if tonumber(asked.nodes or "") ~= plan.nodes then return nil end
  local each = asked["cpus-per-task"]
  local ranks = tonumber(asked.ntasks or "")
  if not ranks then
    if asked.ntasks or each then return nil end -- with -c alone: as many as there is room for
    ranks = plan.nodes * (tonumber(asked["ntasks-per-node"] or "1") or 0)
  end
  if ranks < plan.nodes or each and ranks * (tonumber(each) or 0) ~= plan.nodes * plan.cpus then
    return nil
  end
  return ranks
end

-- Whether the variable of threads is as the entry has it. An entry that also holds where it is unset
-- counts on what the job says of its cores a task: a program that only its step tells of them may start
-- as many workers.
local function threads_hold(entry, cpus, asked)
  local value = os.getenv(entry.variable)
  if value then return value == ("%d"):format(entry.threads) end
  local of_step = asked["cpus-per-task"] and not os.getenv("SLURM_CPUS_PER_TASK")
  if entry.new > 0 and of_step then return false end
  return entry.unset and entry.ranks * entry.threads == cpus
end

-- Whether a program's file is the one that was measured; false for a file that is not known.
local function build_holds(entry, file, asked)
  if not entry.build then return true end
  if not file then return false end
  if asked.chdir and file:sub(1, 1) ~= "/" then return false end
  local build = use("program").build_of(file)
  return build ~= nil and M.hash(build) == entry.build
end

-- What else of the environment says how many threads a task has, or which cores, and would no
-- longer fit; nil for nothing. `counts`: names of numbers of threads.
local function other_threads(entry, variables, counts)
  for name, value in pairs(variables) do
    local another = name ~= entry.variable and counts[name] and value ~= "1"
    local bound = name:find("AFFINITY") or name:find("PLACES") or name:find("PIN") or name:find("BIND")
    if value ~= "" and (another or name == "OMP_THREAD_LIMIT" or name == "KMP_HW_SUBSET"
      or bound and value:find("%d")) then
      return name .. " is set"
    end
  end
end

-- What of the environment gives a container other variables than its step has; nil for nothing.
-- Numbers of threads meant for a container alone, SINGULARITYENV_OMP_NUM_THREADS, are such numbers
-- of the step, too, and judged with them.
local function other_inside()
  for _, container in ipairs({ "SINGULARITY_", "APPTAINER_" }) do
    for option in ("CLEANENV CONTAIN CONTAINALL COMPAT ENV ENV_FILE"):gmatch("%S+") do
      if os.getenv(container .. option) then return container .. option .. " is set" end
    end
  end
end

-- What the entry makes of the step, as a plan of options and variables; or nil and why nothing.
local function change(entry, asked, variables, job, inside)
  local answer, limits, plan = use("answer"), use("limits"), { options = {}, env = {}, wanted = {} }
  plan.decision = job.decision
  if entry.khz > 0 then
    local low = limits.lowest_step(
      entry.khz, os.getenv("SLURM_JOB_PARTITION") or "", job.cpus, use("inventory"), use("steps"))
    if not low then return nil, ("%d kHz is no frequency step of its nodes"):format(entry.khz) end
    for word in (asked["cpu-bind"] or ""):lower():gmatch("[^,]+") do
      if word == "none" or word == "no" then return nil, "without binding to cores, srun sets no cap" end
    end
    plan.options["cpu-freq"] = ("%d-%d"):format(low, entry.khz)
  end
  if entry.new > 0 then
    if entry.ranks * entry.threads ~= job.nodes * job.cpus then
      return nil, "its threads are not as many as it has CPUs"
    end
    if not answer.counts[entry.variable] then return nil, entry.variable .. " is no number of threads" end
    plan.env[entry.variable] = ("%d"):format(entry.new)
    local problem = other_threads(entry, variables, answer.counts) or inside and other_inside()
    if problem then return nil, problem end
  end
  -- A step that has a cap of its own is none that the plan speaks of, whatever would be changed.
  local judged = { options = { ["cpu-freq"] = "" }, env = plan.env }
  local problem = use("understood").refused(judged, asked, variables, "step")
  if problem then return nil, problem end
  return plan
end

-- Looks the step up in the plan and assigns what it gets; returns why it runs as written, and
-- whether that is a fault. `explicit_options` is filter.lua's.
function M.advise(text, options, explicit_options)
  local file, key, any, inside = M.program_of(options.argv)
  local job, fault = M.read(text, key or "none", any or "none")
  if not job then return fault, true end
  if not job[1] then return "its program is not in the plan" end
  fault = of_another(job)
  if fault then return fault, true end
  if os.getenv("ADVISOR_SET") or os.getenv("SLURM_ADVISOR_SET") then return "its job is changed already" end
  local explicit = explicit_options(options)
  local _, listed = system.request("", "", "", config.names, config.prefixes)
  local json, asked = use("json"), {}
  local given, variables = json.flat(explicit), listed and json.flat(listed)
  if not given or not variables then return "what Slurm says the step asks for cannot be read", true end
  for name, value in pairs(given) do asked[(name:gsub("_", "-"))] = value end
  if asked.jobid ~= (os.getenv("SLURM_JOB_ID") or os.getenv("SLURM_JOBID")) then
    return "it is a step of another job"
  end
  if asked.export and asked.export:upper() ~= "ALL" then return "its variables are not all exported" end
  if use("rewrite").is_het(options, explicit) then return "it is one of several components" end
  asked.jobid, variables.SLURM_CPUS_PER_TASK = nil, nil -- an srun that reads it lists it
  if asked["cpu-freq"] and asked["cpu-freq"] == variables.SLURM_CPU_FREQ_REQ then
    asked["cpu-freq"] = nil -- the variable is judged: a site may set it for everybody
  end
  local ranks = ranks_of(asked, job)
  if not ranks then return "it takes a part of its job's nodes or CPUs, or that is not clear" end
  for _, entry in ipairs(job) do
    if entry.ranks == ranks and threads_hold(entry, job.nodes * job.cpus, asked) and build_holds(entry, not inside and file, asked) then
      if entry.new == 0 and entry.khz == 0 then return "the plan leaves it" end
      local plan, problem = change(entry, asked, variables, job, inside)
      if not plan then return problem end
      return use("rewrite").assign(plan, options, "ALL")
    end
  end
  return "the plan has its program with other ranks, threads or builds"
end

return M
