-- Turns a checked plan into options and variables, for cli_filter.

local use = ...

local STAMP, DECISION = "ADVISOR_STAMP", "ADVISOR_DECISION"
local CARRIED = "SLURM_ADVISOR_STAMP" -- goes with the job whatever --export says

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

-- Assigns the whole plan; when something fails on the way, what was done is taken back.
function M.assign(plan, options, export)
  local setenv, undo = use("system").setenv, {}
  local exports_all = export:upper():find("^ALL") ~= nil
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
  local ok, problem = pcall(function()
    variable(DECISION, plan.decision)
    if plan.stamp then variable(exports_all and STAMP or CARRIED, plan.stamp) end
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
