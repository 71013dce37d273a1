-- job_submit: stamps jobs; where the policy says `enforce`, asks about those that passed by the
-- filter.
--
-- Runs inside slurmctld while it holds its locks, so it asks nobody unless the daemon has left
-- its marker beside the socket, and after a daemon that hung not for a while.

local use = ...
local config, answer = use("config"), use("answer")

local ADMIN_COMMENT_LIMIT, SCRIPT_LIMIT, VARIABLE_LIMIT = 4000, 131072, 4096
local VARIABLES = {
  "ADVISOR", "ADVISOR_MODE", "ADVISOR_GOAL", "ADVISOR_MAX_SLOWDOWN", "ADVISOR_APPLICATION",
  "ADVISOR_WORKLOAD", "OMP_NUM_THREADS",
}
local OFF = { off = true, ["0"] = true, no = true, ["false"] = true, never = true }
-- Slurm's "not set" and "infinite" of 16 and 32 bits; a frequency above is a name (low, high).
local NO_VAL16, NO_VAL, INFINITE, FREQ_NAME = 65534, 4294967294, 4294967295, 2147483648
local closed_until = 0

local M = {}

local function number(value, none)
  return type(value) == "number" and value < (none or NO_VAL) and ("%.0f"):format(value) or nil
end

local function text(value)
  return type(value) == "string" and value ~= "" and value or nil
end

local function span(low, high)
  if low and high and low ~= high then return low .. "-" .. high end
  return low or high
end

local function cpu_freq(low, high)
  if high and tonumber(high) >= FREQ_NAME then return "high" end
  return span(low, high)
end

-- What the job asks for, by long option name.
local function wanted_by(job)
  return {
    account = text(job.account), partition = text(job.partition), qos = text(job.qos),
    array = text(job.array_inx), constraint = text(job.features), gres = text(job.tres_per_node),
    gpus = text(job.tres_per_job), nodelist = text(job.req_nodes), ["job-name"] = text(job.name),
    ["cpu-freq"] = cpu_freq(number(job.cpu_freq_min), number(job.cpu_freq_max)),
    ["cpus-per-task"] = number(job.cpus_per_task, NO_VAL16),
    ["ntasks-per-node"] = number(job.ntasks_per_node, NO_VAL16),
    ["ntasks-per-socket"] = number(job.ntasks_per_socket, NO_VAL16),
    ["sockets-per-node"] = number(job.sockets_per_node, NO_VAL16),
    ["cores-per-socket"] = number(job.cores_per_socket, NO_VAL16),
    ntasks = number(job.num_tasks),
    nodes = span(number(job.min_nodes), number(job.max_nodes)),
    mem = number(job.min_mem_per_node), ["mem-per-cpu"] = number(job.min_mem_per_cpu),
    time = job.time_limit == INFINITE and "UNLIMITED" or number(job.time_limit),
    exclusive = job.shared == 0 and "exclusive" or nil,
  }
end

local function object(quote, values)
  local words = {}
  for name, value in pairs(values) do words[#words + 1] = quote(name) .. ":" .. quote(value) end
  return "{" .. table.concat(words, ",") .. "}"
end

local function request(job, wanted, stamp)
  local quote = use("json").quote
  local environment, argv = {}, {}
  for _, name in ipairs(VARIABLES) do
    local value = job.environment[name]
    if type(value) == "string" and #value <= VARIABLE_LIMIT then environment[name] = value end
  end
  for i = 0, (tonumber(job.argc) or 0) - 1 do argv[#argv + 1] = quote(tostring(job.argv[i] or "")) end
  return table.concat({
    '{"v":1,"op":"decide","scheduler":"slurm","hook":"job_submit","type":"sbatch","uid":',
    ("%.0f"):format(job.user_id), ',"stamp":', quote(stamp or ""),
    ',"options":', object(quote, wanted), ',"argv":[', table.concat(argv, ","),
    '],"script":', quote(job.script:sub(1, SCRIPT_LIMIT)),
    ',"truncated":', tostring(#job.script > SCRIPT_LIMIT),
    ',"script_path":', quote(tostring(job.argv[0] or "")), ',"env":', object(quote, environment),
    ',"choices":"","cwd":', quote(job.work_dir or ""), ',"het":false}\n',
  })
end

-- The plan for a job that may have passed by the filter, or nil and why.
local function ask(job, stamp)
  if os.time() < closed_until then return nil end
  local wanted = wanted_by(job)
  local line, word, problem = use("system").exchange(config.socket, request(job, wanted, stamp), config.deadline)
  local plan
  if line then plan, problem, word = answer.read(line) end
  if word == "timeout" or word == "garbage" then
    closed_until = os.time() + config.retry
    problem = ("%s (not asked again for %d s)"):format(problem, config.retry)
  end
  if plan and plan.changes then
    problem = use("limits").refused(plan, wanted, use("inventory"))
    if problem then return nil, problem end
  end
  return plan, problem
end

-- Fields and variables that turn the job into the plan, worked out before any is set. sbatch
-- has derived some of them from others already, so those are made to agree again.
local function changes(job, plan)
  local options, fields, variables = plan.options, {}, {}
  for name, value in pairs(plan.env) do variables[name] = value end
  local function asked(name, current, none)
    return tonumber(options[name]) or tonumber(number(current, none))
  end
  local nodes = asked("nodes", job.min_nodes)
  local per_node = asked("ntasks-per-node", job.ntasks_per_node, NO_VAL16)
  local cpus = asked("cpus-per-task", job.cpus_per_task, NO_VAL16)
  local tasks = tonumber(options.ntasks)
  if not tasks and (options.nodes or options["ntasks-per-node"]) and nodes and per_node then
    tasks = nodes * per_node
  end
  fields.features = options.constraint
  if options.nodes then fields.min_nodes, fields.max_nodes = nodes, nodes end
  if options["ntasks-per-node"] then
    fields.ntasks_per_node = per_node
    variables.SLURM_NTASKS_PER_NODE = options["ntasks-per-node"]
  end
  if tasks then
    fields.num_tasks = tasks
    variables.SLURM_NTASKS, variables.SLURM_NPROCS = ("%d"):format(tasks), ("%d"):format(tasks)
  end
  if options["cpus-per-task"] then
    fields.cpus_per_task = cpus
    variables.SLURM_CPUS_PER_TASK = options["cpus-per-task"]
    variables.SRUN_CPUS_PER_TASK = options["cpus-per-task"]
    if number(job.pn_min_cpus) then fields.pn_min_cpus = cpus end
  end
  if tasks or options["cpus-per-task"] or options.nodes then
    local count = tasks or tonumber(number(job.num_tasks)) or nodes or 1
    fields.min_cpus = count * (cpus or 1)
  end
  if options["cpu-freq"] then variables.SLURM_CPU_FREQ_REQ = options["cpu-freq"] end
  return fields, variables
end

local function assign(job, plan)
  local fields, variables = changes(job, plan)
  local before = {}
  for name in pairs(fields) do before[name] = job[name] end
  local ok, problem = pcall(function()
    for name, value in pairs(fields) do job[name] = value end
  end)
  if not ok then
    for name in pairs(fields) do pcall(function() job[name] = before[name] or "" end) end
    error(problem, 0)
  end
  for name, value in pairs(variables) do job.environment[name] = value end
  job.environment.ADVISOR_DECISION = plan.decision
  if plan.stamp then job.environment.ADVISOR_STAMP = plan.stamp end
end

-- Whether to ask about this job. With --export=NONE and the like nothing tells whether its user
-- opted out, so it is left alone.
local function enforced(job, stamp)
  local environment = job.environment
  local export = environment.SLURM_EXPORT_ENV
  if number(job.het_job_offset) or not text(job.script) then return false end
  if OFF[(environment.ADVISOR or ""):lower()] then return false end
  if not stamp and export and not export:upper():find("^ALL") then return false end
  local marker = io.open(config.socket .. ".enforce", "rb")
  if marker then marker:close() end
  return marker ~= nil
end

-- Puts the stamp behind what a site's own script may have written.
local function put_stamp(job, stamp)
  local comment = text(job.admin_comment)
  comment = comment and comment .. " " .. stamp or stamp
  if #comment <= ADMIN_COMMENT_LIMIT then job.admin_comment = comment end
end

function M.job_submit(job)
  local environment = job.environment
  if not environment then return end -- srun and salloc
  if tonumber(number(job.het_job_offset) or 0) > 0 then return end -- its leader has the stamp
  local stamp = environment.ADVISOR_STAMP or environment.SLURM_ADVISOR_STAMP
  if stamp ~= nil and not answer.is_stamp(stamp) then
    slurm.log_info("%s", ("advisor: uid %.0f: ADVISOR_STAMP is not a stamp: left out"):format(job.user_id))
    stamp = nil
  end
  if enforced(job, stamp) then
    local plan, problem = ask(job, stamp)
    if plan and plan.changes then
      assign(job, plan)
      stamp = plan.stamp
      slurm.log_info("%s", ("advisor: uid %.0f: job rewritten, decision %s"):format(job.user_id, plan.decision))
      if plan.message then slurm.user_msg(plan.message) end
    elseif plan then
      stamp = stamp or plan.stamp
    elseif problem then
      slurm.log_error("%s", "advisor: job goes on unchanged: " .. problem)
    end
  end
  if stamp then put_stamp(job, stamp) end
end

return M
