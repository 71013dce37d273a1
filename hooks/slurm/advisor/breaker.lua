-- The circuit breaker of cli_filter: after a daemon that hung, nobody waits for a while.
--
-- Each sbatch is a process of its own, so the state is a file of the user's: its time says when
-- the daemon hung. It closes itself after `retry` seconds; deleting the file closes it at once.
-- A file of somebody else's, or a link, is never believed and never written through.

local use = ...
local system = use("system")

local M = {}

local function locate(uid)
  local runtime = os.getenv("XDG_RUNTIME_DIR") or ""
  if runtime:sub(1, 1) == "/" then
    local kind, owner = system.look(runtime)
    if kind == "folder" and owner == uid then return runtime .. "/advisor-breaker" end
  end
  return ("/tmp/advisor-breaker-%d"):format(uid)
end

-- Whether the daemon hung less than `retry` seconds ago.
function M.is_open(retry)
  local uid = system.uid()
  local kind, owner, time = system.look(locate(uid))
  if kind ~= "file" or owner ~= uid then return false end
  local age = os.time() - time
  return age >= -1 and age < retry
end

-- Notes that it hung just now.
function M.trip()
  local uid = system.uid()
  local path = locate(uid)
  local _, owner = system.look(path)
  if owner == uid then system.remove(path) end
  system.create(path)
end

return M
