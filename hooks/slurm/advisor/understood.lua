-- Whether all that a job asks for is understood, and binds nothing of what the plan changes.
--
-- The daemon has judged it already, by the same table (table.lua, written by `advisor hook
-- install`); a daemon that has gone mad or is of another release cannot change what it must not.

local use = ...
local known = use("table")

local M = {}

-- What a part of the plan changes.
local CHANGES = { constraint = "node_type", ["cpu-freq"] = "frequency", ["cpus-per-task"] = "cores" }

-- Values of options that Slurm lists although nobody set them.
local NOT_SET = { unset = true, ["(null)"] = true }

local function has(words, name) return words:find(" " .. name .. " ", 1, true) ~= nil end

-- The value of a key in a map of table.lua, the text ";key=value;key=value;".
local function value_of(map, key)
  local _, stop = map:find(";" .. key .. "=", 1, true)
  return stop and map:match("^[^;]*", stop + 1)
end

-- Classes with those that a word of the value brings.
local function with_value(classes, option, value)
  local low, high = value:match("^(%d+)%-(%d+)$")
  if has(known.counts, option) and not (value:find("^%d+$") or low and low == high) then
    classes = classes .. " all"
  end
  for _, rule in ipairs(known.values[option] or {}) do
    for word in value:lower():gmatch("[^%s,:;=@]+") do
      for beginning in rule[1]:gmatch("%S+") do
        if word:sub(1, #beginning) == beginning then classes = classes .. " " .. rule[2] end
      end
    end
  end
  return classes
end

-- What the site's own file says of a name that is in no table.
local function by_site(name)
  local plain = name:match("[^:]*$"):gsub("_", "-")
  return value_of(known.site, plain)
end

-- The classes of an option with this value; nil for one that is in no table.
local function option_classes(name, value, program)
  local classes = program == "step" and value_of(known.launcher, name) or value_of(known.options, name) or has(known.harmless_options, name) and "harmless"
    or by_site(name)
  return classes and with_value(classes, name, value) or nil
end

local function in_family(name)
  for _, beginning in ipairs(known.families) do
    if name:sub(1, #beginning) == beginning then return true end
  end
  return name:find("_HET_GROUP_%d+$") or name:find("_PACK_GROUP_%d+$")
end

-- The same of a variable; "" of one that is not read, or read as an option that is judged already.
local function variable_classes(name, value, options, program)
  local prefix = name:match("^%u+_") or ""
  if not has(known.reads[program], prefix) then return "" end
  local classes, option = value_of(known.variables, name), value_of(known.sets, name)
  if option == "cpu-freq" then -- what the site sets for everybody
    local khz = value:match("(%d+)$") or value
    if by_site(name) == "harmless" or by_site(name .. "=" .. khz) == "harmless" then return "" end
  end
  if not classes then
    return (has(known.harmless_variables, name) or in_family(name)) and "" or by_site(name)
  end
  local on = value ~= "" or option == "exclusive"
  if option and has(known.flags, option) then
    local word = value:lower()
    on = word == "" or word == "yes" or (word:find("^[+-]?%d+$") and word:find("[1-9]")) ~= nil
  end
  local as_option = options[option or ""] ~= nil
    and (program == "srun" or program == "step" or prefix == "SLURM_" and has(known.overwritten, option))
  if not on or as_option then return "" end
  local step = prefix == "SLURM_" or prefix == "SRUN_"
  if option == "export" and step and value:upper() ~= "ALL" then return "binds:threads" end
  return option and with_value(classes, option, value) or classes
end

-- What the plan changes, by axis.
local function changed_by(plan)
  local axes = {}
  for name in pairs(plan.options) do
    axes[CHANGES[name] or (use("axes")[name] or {}).axis or "all"] = true
  end
  if next(plan.env) then axes.threads = true end
  return axes
end

-- refused(plan, options, variables, program) says why the plan must not be assigned, or nil.
-- `options` and `variables` are what the user set, by name; program "step" is srun inside a job.
function M.refused(plan, options, variables, program)
  local axes, found = changed_by(plan), {}
  local cap_alone = axes.frequency and next(axes, next(axes)) == nil
  -- what leaves open what a core or a task is: a cap is decided for all that a job runs, or for one
  -- program as a step of one shape
  axes.shape = program == "step" or not cap_alone
  local function judge(shown, classes)
    if not classes then found[#found + 1] = shown .. " is not understood" end
    for word in (classes or ""):gmatch("%S+") do
      local axis = word == "all" and "all" or word:match("^binds:([%l_]+)")
      if axis and (axis == "all" or axes.all or axes[axis]) then found[#found + 1] = shown .. " binds it" end
    end
  end
  local names = {}
  for name, value in pairs(options) do names[(name:gsub("_", "-"))] = value end
  for name, value in pairs(names) do
    local classes = option_classes(name, value, program)
    judge("--" .. name, classes and NOT_SET[value] and "" or classes)
  end
  for name, value in pairs(variables) do
    judge(name, variable_classes(name, value, names, program))
  end
  table.sort(found)
  return found[1]
end

return M
