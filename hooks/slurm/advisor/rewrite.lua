-- Turns a checked plan into options and variables, for cli_filter.

local use = ...

local STAMP, DECISION = "ADVISOR_STAMP", "ADVISOR_DECISION"
local SET, STEPS = "ADVISOR_SET", "ADVISOR_PLAN"
local CARRIED = "SLURM_" -- before a name: goes with the job whatever --export says
-- Variables by which Slurm's own srun and children of the job see what an option became.
local SEEN_AS = {
  ["cpu-freq"] = "SLURM_CPU_FREQ_REQ", ["cpus-per-task"] = "SLURM_CPUS_PER_TASK",
  ["gpu-freq"] = "SLURM_GPU_FREQ",
}
-- By which srun and slurmstepd read an option of a SPANK plugin: a filter can set Slurm's own only.
local SPANK = { "_SLURM_SPANK_OPTION_%s_%s", "SLURM_SPANK__SLURM_SPANK_OPTION_%s_%s" }

local M = {}

-- Whether this is the first component of a heterogeneous job: a ":" before the script.
function M.is_het(options, explicit)
  local file = io.open("/proc/self/cmdline", "rb")
  if not file then return false end
  local text = file:read("*a")
  file:close()
  local at = text:find("%z:%z")
  if not at then return false end
  local _, before = text:sub(1, at):gsub("%z", "")
  local _, all = text:gsub("%z", "")
  return options.type == "srun" or before < all - #(use("json").decode(explicit).argv or {})
end

-- What the user set, by long option name: the JSON says whether, Slurm says what.
function M.wanted_by(options, explicit)
  return setmetatable({}, {
    __index = function(_, name)
      return explicit:find('"' .. name .. '":', 1, true) and options[name] or nil
    end,
  })
end

local function escape(char) return ("%%%02x"):format(char:byte()) end

-- The variables that are an option to whichever SPANK plugin has it; Slurm says which plugins there
-- are, and not which options they have.
function M.as_variables(name, value, options)
  local variables = {}
  for plugin in pairs(options.spank or {}) do
    for _, form in ipairs(SPANK) do
      variables[form:format((plugin:gsub("%W", "_")), (name:gsub("%W", "_")))] = value
    end
  end
  return variables
end

-- What the plan sets, as words `NAME=VALUE`, or `NAME=VALUE<BEFORE` where there was a value before:
-- goes with the job, so that jobs submitted from inside it can be given back what was there.
function M.what_is_set(plan, before)
  local words = {}
  local function add(name, value, was)
    was = was and was ~= "" and was ~= value and "<" .. was:gsub("[^%w_.,:+-]", escape) or ""
    words[#words + 1] = name .. "=" .. value .. was
  end
  for name, value in pairs(plan.env) do add(name, value, before(name)) end
  for option, name in pairs(SEEN_AS) do
    if plan.options[option] then add(name, plan.options[option], before(name, option)) end
  end
  table.sort(words)
  return words[1] and table.concat(words, " ")
end

-- Takes back what such words say was set; a value that was changed since is somebody's own.
function M.restore(text)
  local setenv = use("system").setenv
  for name, value, more in text:gmatch("([%a_][%w_]*)=([%w.:=,+-]+)(%S*)") do
    if os.getenv(name) == value then
      local was = more:match("^<(.+)$")
      setenv(name, was and was:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
    end
  end
end

-- Assigns the whole plan; when something fails on the way, what was done is taken back.
function M.assign(plan, options, export)
  local setenv, undo = use("system").setenv, {}
  local exports_all = (export:upper() .. ","):find("^ALL,") ~= nil
  local function variable(name, value)
    local before = os.getenv(name)
    undo[#undo + 1] = function() setenv(name, before) end
    setenv(name, value)
  end
  local function option(name, value)
    local before = plan.wanted[name]
    if before then undo[#undo + 1] = function() options[name] = before end end
    options[name] = value
  end
  for name, value in pairs(plan.options) do
    local axis = use("axes")[name]
    if axis and axis.spank and options.spank then
      plan.options[name] = nil
      for variable_name, text in pairs(M.as_variables(name, value, options)) do plan.env[variable_name] = text end
    end
  end
  local ok, problem = pcall(function()
    variable(DECISION, plan.decision)
    local carried = exports_all and "" or CARRIED
    if plan.stamp then variable(carried .. STAMP, plan.stamp) end
    if plan.steps then variable(carried .. STEPS, plan.steps) end
    local set = M.what_is_set(plan, function(name, option_)
      return option_ and plan.wanted[option_] or exports_all and os.getenv(name) or nil
    end)
    if set then variable(carried .. SET, set) end
    for name, value in pairs(plan.env) do
      variable(name, value)
      export = export .. "," .. name .. "=" .. value
    end
    if not exports_all and next(plan.env) then option("export", export) end
    for name, value in pairs(plan.options) do option(name, value) end
  end)
  if ok then return end
  for i = #undo, 1, -1 do pcall(undo[i]) end
  error(problem, 0)
end

return M
