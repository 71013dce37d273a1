-- Whether the cluster could ever run what the plan makes of a job, and whether that is no more than
-- the job has.
--
-- Slurm refuses a job outright for a feature, node count or size it does not have. What it has
-- is in inventory.lua, written by `advisor hook install` from Slurm itself: a daemon that has
-- gone mad cannot get a job refused.
--
-- inventory: { default = partition, partitions = { name = { max_nodes = n or nil, classes =
--   { { nodes = n, cpus = n, memory = MB, features = { name = true } }, ... } } } }

local use = ...
local M = {}

local FACTORS = { K = 1 / 1024, M = 1, G = 1024, T = 1024 * 1024 }

local function count(text)
  local number = type(text) == "string" and tonumber(text:match("^%d+"))
  return number and number > 0 and number or nil
end

local function megabytes(text)
  local number, unit = (text or ""):upper():match("^(%d+%.?%d*)([KMGT]?)")
  return number and tonumber(number) * FACTORS[unit == "" and "M" or unit] or 0
end

-- Options that say where a job fits: a plan without any of them leaves it where it was.
local SIZES = { "constraint", "nodes", "ntasks", "ntasks-per-node", "cpus-per-task" }

-- refused(plan, wanted, inventory) says why not, or nil. `wanted` maps long option names to what
-- the user set; the plan's options go before them.
function M.refused(plan, wanted, inventory)
  if type(inventory) ~= "table" or type(inventory.partitions) ~= "table" then
    return "there is no inventory (run: advisor hook install)"
  end
  local sized
  for _, name in ipairs(SIZES) do sized = sized or plan.options[name] end
  if not sized then return end
  local function get(name) return plan.options[name] or wanted[name] end
  local feature = get("constraint")
  if feature and not feature:find("^[%w_.%-]+$") then feature = nil end -- an expression of the user's
  local tasks, nodes = count(get("ntasks")) or 1, count(get("nodes"))
  local per_node = count(get("ntasks-per-node")) or nodes and math.ceil(tasks / nodes)
  local places = nodes or math.ceil(tasks / (per_node or 1)) -- nodes, or tasks that may share one
  local cpus = (per_node or 1) * (count(get("cpus-per-task")) or 1)
  local memory = math.max(megabytes(wanted.mem), megabytes(wanted["mem-per-cpu"]) * cpus)
  local names = wanted.partition or inventory.default or ""
  for name in (names == "" and "?" or names):gmatch("[^,]+") do
    local partition = inventory.partitions[name]
    if not partition then return "partition " .. name .. " is not in the inventory" end
    local fit = 0
    for _, class in ipairs(partition.classes) do
      local has = not feature or class.features[feature]
      if has and class.cpus >= cpus and class.memory >= memory then
        fit = fit + class.nodes * (per_node and 1 or math.floor(class.cpus / cpus))
      end
    end
    if fit < places or per_node and places > (partition.max_nodes or places) then
      return ("partition %s has no %d %s with %d cores, %.0f MB%s"):format(
        name, places, (per_node or places == 1) and "nodes" or "places", cpus, math.floor(memory),
        feature and " and feature " .. feature or "")
    end
  end
end

-- The classes of nodes that a job may get, of all of its partitions.
local function landing(feature, wanted, inventory)
  local found, names = {}, wanted.partition or inventory.default or ""
  for name in names:gmatch("[^,]+") do
    for _, class in ipairs((inventory.partitions[name] or { classes = {} }).classes) do
      if not feature or class.features[feature] then found[#found + 1] = class end
    end
  end
  return found
end

-- How many threads a task may have: what it asks for, else its share of the largest node.
local function most_threads(wanted, classes)
  local cpus = count(wanted["cpus-per-task"])
  if cpus then return cpus end
  local tasks, nodes, most = count(wanted.ntasks) or 1, count(wanted.nodes), 1
  local per_node = count(wanted["ntasks-per-node"]) or nodes and math.ceil(tasks / nodes)
  for _, class in ipairs(classes) do
    local share = math.floor(class.cpus / (per_node or math.min(tasks, class.cpus)))
    most = math.max(most, share)
  end
  return most
end

-- Whether a cap is a frequency step of the node type of one of these classes; true where none is
-- known of any node type.
local function is_step(cap, classes, steps)
  if next(steps) == nil then return true end
  for _, class in ipairs(classes) do
    local known = false
    for name in pairs(class.features) do
      known = known or steps[name] ~= nil
      if (steps[name] or ""):find(" " .. cap .. " ", 1, true) then return true end
    end
    if not known and (steps[""] or ""):find(" " .. cap .. " ", 1, true) then return true end
  end
  return false
end

-- The lowest frequency of the nodes of a partition that have so many CPUs and a cap as a step below
-- their highest; nil for none. `steps` as above.
function M.lowest_step(cap, partition, cpus, inventory, steps)
  local word = (" %d "):format(cap)
  for _, class in ipairs(landing(nil, { partition = partition }, inventory)) do
    for name in pairs(class.cpus == cpus and class.features or {}) do
      local text = steps[name] or ""
      if text:find(word, 1, true) and not text:find(word .. "$") then return tonumber(text:match("%d+")) end
    end
  end
end

-- Whether the GPUs of the nodes of one of these classes can be set so: `values` has, by feature, the
-- numbers that an option may have as a text, or the least and the most as a table.
local function can_be_set(number, classes, values)
  for _, class in ipairs(classes) do
    local names = { [""] = true }
    for name in pairs(class.features) do names[name] = true end
    for name in pairs(names) do
      local known = values[name]
      if type(known) == "table" and number >= known[1] and number <= known[2] then return true end
      if type(known) == "string" and known:find(" " .. number .. " ", 1, true) then return true end
    end
  end
  return false
end

-- beyond(plan, wanted, variables, inventory, steps) says what of a plan is more than the job may
-- have, or nil: a larger request, more threads than a task has CPUs or its user said, a cap that
-- is no step of its nodes, a clock or limit that their GPUs cannot have. `variables` are those the user set, `steps` the caps of node types in
-- kHz, by feature.
function M.beyond(plan, wanted, variables, inventory, steps)
  local cores, asked = count(plan.options["cpus-per-task"]), count(wanted["cpus-per-task"])
  if cores and cores > (asked or 0) then
    return ("%d cores a task are more than the job asks for"):format(cores)
  end
  local feature = plan.options.constraint or wanted.constraint
  if feature and not feature:find("^[%w_.%-]+$") then feature = nil end -- an expression of the user's
  local classes = landing(feature, wanted, inventory)
  local most = most_threads(wanted, classes)
  for name, value in pairs(plan.env) do
    local own = count(variables[name])
    if tonumber(value) > math.min(most, own or most) then
      return ("%s=%s are more threads than the job has: %d"):format(name, value, math.min(most, own or most))
    end
  end
  local cap = (plan.options["cpu-freq"] or ""):match("%-(%d+)$")
  if cap and not is_step(cap, classes, steps) then
    return cap .. " kHz is no frequency step of its nodes"
  end
  for name, value in pairs(plan.options) do
    local axis = use("axes")[name]
    if axis and not can_be_set(tonumber(value:match(axis.pattern)), classes, axis.values) then
      return ("%s=%s is nothing that the GPUs of its nodes can have"):format(name, value)
    end
  end
end

return M
