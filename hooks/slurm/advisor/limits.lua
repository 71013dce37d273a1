-- Whether the cluster could ever run what the plan makes of a job.
--
-- Slurm refuses a job outright for a feature, node count or size it does not have. What it has
-- is in inventory.lua, written by `advisor hook install` from Slurm itself: a daemon that has
-- gone mad cannot get a job refused.
--
-- inventory: { default = partition, partitions = { name = { max_nodes = n or nil, classes =
--   { { nodes = n, cpus = n, memory = MB, features = { name = true } }, ... } } } }

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
      return ("partition %s has no %d %s with %d cores, %d MB%s"):format(
        name, places, (per_node or places == 1) and "nodes" or "places", cpus, memory,
        feature and " and feature " .. feature or "")
    end
  end
end

return M
