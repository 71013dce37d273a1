-- job_submit.lua: installed by `advisor hook install`, advisor @VERSION@ (advisor stub).
-- Replaced by the next install: a site's own rules belong into job_submit.site.lua; after a
-- change there, `touch job_submit.lua` makes slurmctld read both again.
--
-- Runs inside slurmctld, under its locks. A file here that does not load when slurmctld starts
-- is fatal for it, so this one only defines the two functions Slurm wants; all else is behind
-- pcall, and what cannot be had is left out. When the site's own script does not load, its copy
-- of the last install stands in for it.

local source = debug and debug.getinfo(1, "S").source or ""
local here = source:match("^@(/.*)/[^/]*$") or "@DIR@"
local home = here .. "/advisor/@ID@"

local function complain(problem) slurm.log_error("%s", "advisor: " .. tostring(problem)) end

-- @site
local site_file = "@SITE@"
local names = { "slurm_job_submit", "slurm_job_modify" }
local site = {}

-- Runs the site's own script as Slurm would and keeps its functions.
local function load_site(path)
  for _, n in ipairs(names) do _G[n] = nil end
  local ok, problem = pcall(function()
    local code = assert(loadfile(path))()
    if code ~= nil and code ~= slurm.SUCCESS then error(path .. " returned " .. tostring(code), 0) end
  end)
  if not ok then return complain("the site's own script does not load: " .. tostring(problem)) end
  for _, n in ipairs(names) do site[n] = _G[n] end
  return true
end

if not load_site(here .. "/" .. site_file) and load_site(home .. "/" .. site_file) then
  complain("its copy of the last install is used")
end

-- Calls the site's own function as Slurm would: its errors and its return code are its own.
local function own(name, ...)
  if not site[name] then return slurm.SUCCESS end
  local mine = {}
  for _, n in ipairs(names) do mine[n], _G[n] = _G[n], site[n] or _G[n] end
  local done, result = pcall(site[name], ...)
  for _, n in ipairs(names) do _G[n] = mine[n] end
  if not done then error(result, 0) end
  return result
end
-- @end

local ok, submit = pcall(function()
  return assert(loadfile(home .. "/start.lua"))(home, "submit")
end)
if not ok then
  complain("jobs go on unchanged and without a stamp: " .. tostring(submit) .. " (run: advisor hook install)")
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  local result = own("slurm_job_submit", job_desc, part_list, submit_uid)
  if result ~= nil and result ~= slurm.SUCCESS then return result end
  if ok then
    local fine, problem = pcall(submit.job_submit, job_desc)
    if not fine then complain(problem) end
  end
  return result
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return own("slurm_job_modify", job_desc, job_rec, part_list, modify_uid)
end

return slurm.SUCCESS
