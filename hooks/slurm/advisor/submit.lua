-- job_submit: stamps jobs; where the policy says `enforce`, asks about those that passed by the
-- filter.
--
-- Runs inside slurmctld while it holds its locks, so it asks nobody unless the daemon has left
-- its marker beside the socket, and after a daemon that hung not for a while.

local use = ...
local config, answer, known = use("config"), use("answer"), use("table")

local ADMIN_COMMENT_LIMIT = 4000
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

-- Fields by the option that sets them, where a set one is a text, or a number below its "not set".
local TEXTS = {
  account = "account", array = "array_inx", batch = "batch_features", bb = "burst_buffer",
  clusters = "clusters", constraint = "features", container = "container",
  ["cpus-per-gpu"] = "cpus_per_tres", dependency = "dependency", exclude = "exc_nodes",
  extra = "extra", gpus = "tres_per_job", ["gpus-per-socket"] = "tres_per_socket",
  ["gpu-freq"] = "tres_freq", gres = "tres_per_node", ["job-name"] = "name", licenses = "licenses",
  ["mem-per-gpu"] = "mem_per_tres", network = "network", nodelist = "req_nodes",
  partition = "partition", prefer = "prefer", qos = "qos", reservation = "reservation",
  ["tres-bind"] = "tres_bind", ["tres-per-task"] = "tres_per_task", wckey = "wckey",
}
local NUMBERS = {
  ["cores-per-socket"] = { "cores_per_socket", NO_VAL16 },
  ["cpus-per-task"] = { "cpus_per_task", NO_VAL16 }, ["delay-boot"] = { "delay_boot", NO_VAL },
  mem = { "min_mem_per_node", NO_VAL }, ["mem-per-cpu"] = { "min_mem_per_cpu", NO_VAL },
  ntasks = { "num_tasks", NO_VAL },
  ["ntasks-per-core"] = { "ntasks_per_core", NO_VAL16 },
  ["ntasks-per-gpu"] = { "ntasks_per_tres", NO_VAL16 },
  ["ntasks-per-node"] = { "ntasks_per_node", NO_VAL16 },
  ["ntasks-per-socket"] = { "ntasks_per_socket", NO_VAL16 },
  ["sockets-per-node"] = { "sockets_per_node", NO_VAL16 }, switches = { "req_switch", NO_VAL },
  ["threads-per-core"] = { "threads_per_core", NO_VAL16 },
  ["time-min"] = { "time_min", NO_VAL }, tmp = { "pn_min_tmp_disk", NO_VAL },
}
-- Those where nothing and "not set" are one.
local FLAGS = { contiguous = "contiguous", immediate = "immediate", reboot = "reboot" }

-- What the job asks for, by long option name.
local function wanted_by(job)
  local wanted = {
    ["cpu-freq"] = cpu_freq(number(job.cpu_freq_min), number(job.cpu_freq_max)),
    nodes = span(number(job.min_nodes), number(job.max_nodes)),
    time = job.time_limit == INFINITE and "UNLIMITED" or number(job.time_limit),
    exclusive = job.shared == 0 and "exclusive" or nil,
    oversubscribe = job.shared == 1 and "oversubscribe" or nil,
    hold = job.priority == 0 and "set" or nil,
    begin = (tonumber(job.begin_time) or 0) > 0 and ("%.0f"):format(job.begin_time) or nil,
  }
  for name, field in pairs(TEXTS) do wanted[name] = text(job[field]) end
  for name, field in pairs(NUMBERS) do wanted[name] = number(job[field[1]], field[2]) end
  for name, field in pairs(FLAGS) do
    local value = number(job[field], NO_VAL16)
    wanted[name] = value ~= "0" and value or nil
  end
  -- -c and --ntasks-per-node set it too, to what they ask of a node.
  local per_node = tonumber(wanted["ntasks-per-node"] or 1) * tonumber(wanted["cpus-per-task"] or 1)
  local least = number(job.pn_min_cpus, NO_VAL16)
  if least and tonumber(least) > per_node then wanted.mincpus = least end
  local governor = number(job.cpu_freq_gov)
  if governor and governor ~= "0" then
    wanted["cpu-freq"] = (wanted["cpu-freq"] or "") .. ":userspace" -- or another: it is the user's
  end
  return wanted
end

-- The variables of the job that say how it runs: Slurm gives them only by name.
local function variables_of(job)
  local found = {}
  local function look(name)
    local value = job.environment[name]
    if type(value) == "string" and #value <= config.max_variable then found[name] = value end
  end
  for name in known.asked_by_name:gmatch("%S+") do look(name) end
  for name in known.variables:gmatch(";([^;=]+)=") do look(name) end
  return found
end

local function object(quote, values)
  local words = {}
  for name, value in pairs(values) do words[#words + 1] = quote(name) .. ":" .. quote(value) end
  return "{" .. table.concat(words, ",") .. "}"
end

local function request(job, wanted, variables, stamp)
  local quote = use("json").quote
  local argv, given = {}, job.argv or {} -- none for a script from standard input
  for i = 0, (tonumber(job.argc) or 0) - 1 do argv[#argv + 1] = quote(tostring(given[i] or "")) end
  return table.concat({
    '{"v":1,"op":"decide","scheduler":"slurm","hook":"job_submit","cluster":"', config.cluster,
    '","type":"sbatch","uid":',
    ("%.0f"):format(job.user_id), ',"stamp":', quote(stamp or ""),
    ',"options":', object(quote, wanted), ',"argv":[', table.concat(argv, ","),
    '],"script":', quote(job.script:sub(1, config.max_script)),
    ',"truncated":', tostring(#job.script > config.max_script),
    ',"script_path":', quote(tostring(given[0] or "")), ',"env":', object(quote, variables),
    ',"choices":"","cwd":', quote(job.work_dir or ""), ',"het":false}\n',
  })
end

-- Why the plan must not be assigned, or nil.
local function refused(job, plan, wanted, variables)
  if plan.options["cpus-per-task"] then return "the cores of a job are not changed in here" end
  for name in pairs(plan.options) do
    if use("axes")[name] and name ~= "gpu-freq" then return name .. " is not written in here" end
  end
  for name in pairs(plan.env) do
    if job.environment[name] and not variables[name] then return name .. " is the user's own" end
  end
  return use("understood").refused(plan, wanted, variables, "sbatch")
    or use("limits").refused(plan, wanted, use("inventory"))
    or use("limits").beyond(plan, wanted, variables, use("inventory"), use("steps"))
end

-- The plan for a job that may have passed by the filter, or nil and why.
local function ask(job, stamp)
  if os.time() < closed_until then return nil end
  local wanted, variables = wanted_by(job), variables_of(job)
  local line, word, problem = use("system").exchange(
    config.socket, request(job, wanted, variables, stamp), config.deadline)
  local plan
  if line then plan, problem, word = answer.read(line) end
  if word == "absent" then
    problem = ("%s: %s (is advisor serve running?)"):format(config.socket, problem)
  end
  if word == "timeout" or word == "garbage" then
    closed_until = os.time() + config.retry
    problem = ("%s (not asked again for %d s)"):format(problem, config.retry)
  end
  if plan and plan.changes then
    problem = refused(job, plan, wanted, variables)
    if problem then return nil, problem end
  end
  return plan, problem
end

-- Assigns the whole plan. Only the constraint is a field: a cap set there is not applied, but srun
-- reads its own variables.
local function assign(job, plan)
  local environment = job.environment
  local set = use("rewrite").what_is_set(plan, function(name) return environment[name] end)
  if plan.options.constraint then job.features = plan.options.constraint end
  for name, value in pairs(plan.env) do environment[name] = value end
  if plan.options["cpu-freq"] then environment.SLURM_CPU_FREQ_REQ = plan.options["cpu-freq"] end
  if plan.options["gpu-freq"] then environment.SLURM_GPU_FREQ = plan.options["gpu-freq"] end
  if set then environment.ADVISOR_SET = set end
  environment.ADVISOR_DECISION = plan.decision
  if plan.stamp then environment.ADVISOR_STAMP = plan.stamp end
end

-- Whether to ask about this job. With --export=NONE and the like nothing tells whether its user
-- opted out, so it is left alone.
local function enforced(job, stamp)
  local environment = job.environment
  local export = environment.SLURM_EXPORT_ENV
  if number(job.het_job_offset) or not text(job.script) then return false end
  if config.off:find(" " .. (environment.ADVISOR or ""):lower() .. " ", 1, true) then return false end
  if not stamp and export and not (export:upper() .. ","):find("^ALL,") then return false end
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
  local gpus = environment.SLURM_ADVISOR_GPUS -- a sweep's: what its nodes set for this one job
  if not stamp and gpus and #gpus <= 200 and gpus:find('^{["a-z_:,/%d]+}$') then
    stamp = 'advisor:{"v":1,"gpus":' .. gpus .. "}"
  end
  if enforced(job, stamp) then
    local plan, problem = ask(job, stamp)
    if plan and plan.changes then
      assign(job, plan)
      stamp = plan.stamp
      slurm.log_info("%s", ("advisor: uid %.0f: job rewritten, decision %s"):format(job.user_id, plan.decision))
      if plan.message and plan.always then slurm.user_msg(plan.message) end
    elseif plan then
      stamp = stamp or plan.stamp
    elseif problem then
      slurm.log_error("%s", "advisor: job goes on unchanged: " .. problem)
    end
  end
  if stamp then put_stamp(job, stamp) end
end

return M
