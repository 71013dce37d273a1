-- cli_filter.lua: installed by `advisor hook install`, advisor @VERSION@ (advisor stub).
-- Replaced by the next install: a site's own rules belong into cli_filter.site.lua.
--
-- Runs in sbatch, srun and salloc. A file here that does not load fails every one of them, steps
-- of running jobs included, so this one only defines the three functions Slurm wants; all else
-- is behind pcall, and what cannot be had is left out. When the site's own script does not load,
-- its copy of the last install stands in for it.

local source = debug and debug.getinfo(1, "S").source or ""
local here = source:match("^@(/.*)/[^/]*$") or "@DIR@"
local home = here .. "/advisor/@ID@"
local OFF = "@OFF@"

-- The advisor's half, loaded when first needed; false once it could not be.
local filter
local function advisor(name, ...)
  local debug = os.getenv("ADVISOR_DEBUG")
  collectgarbage("stop") -- for as short as this it costs more than it frees
  if filter == nil then
    local ok, loaded = pcall(function()
      local chunk = not debug and loadfile(home .. "/filter-" .. _VERSION:sub(5) .. ".luac")
        or assert(loadfile(home .. "/start.lua"))
      return chunk(home, "filter")
    end)
    filter = ok and loaded
    if not ok and debug then
      io.stderr:write("advisor: submitted unchanged: ", tostring(loaded), " (run: advisor hook install)\n")
    end
  end
  if filter then pcall(filter[name], ...) end
  collectgarbage("restart")
end

-- @site
local site_file = "@SITE@"
local names = { "slurm_cli_setup_defaults", "slurm_cli_pre_submit", "slurm_cli_post_submit" }
local site = {}

-- Calls the site's own function as Slurm would: its errors and its return code are its own.
local function own(name, ...)
  if not site[name] then return slurm.SUCCESS end
  local mine = {}
  for _, n in ipairs(names) do mine[n], _G[n] = _G[n], site[n] or _G[n] end
  local ok, result = pcall(site[name], ...)
  for _, n in ipairs(names) do _G[n] = mine[n] end
  if not ok then error(result, 0) end
  return result
end

-- Runs the site's own script as Slurm would and keeps its functions.
local function load_site(path)
  for _, n in ipairs(names) do _G[n] = nil end
  local ok, problem = pcall(function()
    local code = assert(loadfile(path))()
    if code ~= nil and code ~= slurm.SUCCESS then error(path .. " returned " .. tostring(code), 0) end
  end)
  if ok then
    for _, n in ipairs(names) do site[n] = _G[n] end
  end
  return ok, problem
end

local ok, problem = load_site(here .. "/" .. site_file)
if not ok then
  io.stderr:write("advisor: the site's own script does not load: ", tostring(problem), "\n")
  load_site(home .. "/" .. site_file)
end
-- @end

-- Whether one of these is in the environment, as it is or as it goes with a job whatever is exported.
local function has(...)
  for _, name in ipairs({ ... }) do
    if os.getenv("ADVISOR_" .. name) or os.getenv("SLURM_ADVISOR_" .. name) then return true end
  end
end

function slurm_cli_setup_defaults(options, early)
  return own("slurm_cli_setup_defaults", options, early)
end

function slurm_cli_pre_submit(options, offset)
  local result = own("slurm_cli_pre_submit", options, offset)
  if result ~= nil and result ~= slurm.SUCCESS then return result end
  local off = OFF:find(" " .. (os.getenv("ADVISOR") or ""):lower() .. " ", 1, true)
  if options.type == "srun" and (os.getenv("SLURM_JOB_ID") or os.getenv("SLURM_JOBID")) then
    if has("PLAN") then advisor("step", options, offset) end
  elseif not off or has("STAMP", "SET", "PLAN") then -- what an outer job was given is taken out
    advisor("pre_submit", options, offset)
  end
  return result
end

function slurm_cli_post_submit(offset, job_id, step_id)
  local result = own("slurm_cli_post_submit", offset, job_id, step_id)
  if filter then advisor("post_submit", offset, job_id) end
  return result
end

return slurm.SUCCESS
