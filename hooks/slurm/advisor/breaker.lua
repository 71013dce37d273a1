-- The circuit breaker of cli_filter: after a daemon that hung, nobody waits for a while.
--
-- Each sbatch is a process of its own, so the state is a file of the user's: its time says when
-- the daemon hung. It closes itself after `retry` seconds; deleting the file closes it at once.
-- A file of somebody else's, or a link, is never believed and never written through.

local use = ...
local posix = use("posix")

local M = {}
local MODE = 384 -- 0600

-- The first of the possible files that is ours or not there yet.
local function locate(stat)
  local uid = posix("unistd").geteuid()
  local runtime = os.getenv("XDG_RUNTIME_DIR") or ""
  local folder = runtime:sub(1, 1) == "/" and stat.lstat(runtime)
  if folder and folder.st_uid == uid and stat.S_ISDIR(folder.st_mode) ~= 0 then
    local path = runtime .. "/advisor-breaker"
    return path, stat.lstat(path), uid
  end
  local path = "/tmp/advisor-breaker-" .. uid
  return path, stat.lstat(path), uid
end

-- Whether the daemon hung less than `retry` seconds ago.
function M.is_open(retry)
  local stat = posix("sys.stat")
  local _, found, uid = locate(stat)
  if not found or found.st_uid ~= uid or stat.S_ISREG(found.st_mode) == 0 then return false end
  local age = os.time() - found.st_mtime
  return age >= -1 and age < retry
end

-- Notes that it hung just now.
function M.trip()
  local stat, fcntl, unistd = posix("sys.stat"), posix("fcntl"), posix("unistd")
  local path, found, uid = locate(stat)
  if found and found.st_uid == uid then unistd.unlink(path) end
  local fd = fcntl.open(path, fcntl.O_WRONLY + fcntl.O_CREAT + fcntl.O_EXCL, MODE)
  if fd then unistd.close(fd) end
end

return M
