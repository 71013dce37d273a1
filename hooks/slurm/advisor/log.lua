-- One line to syslog, and to stderr too when ADVISOR_DEBUG is set.
--
-- Not by syslog(3): that waits for ever when the log daemon hangs.

local use = ...
local config, posix = use("config"), use("posix")

local WARNING = "<12>" -- facility user
local WAIT_US = 20000

local function send(text)
  local socket = posix("sys.socket")
  local fd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM, 0)
  if not fd then return end
  socket.setsockopt(fd, socket.SOL_SOCKET, socket.SO_SNDTIMEO, 0, WAIT_US)
  if socket.connect(fd, { family = socket.AF_UNIX, path = config.syslog }) then
    socket.send(fd, WARNING .. text)
  end
  posix("unistd").close(fd)
end

return function(problem, quietly)
  local text = "advisor: submitted unchanged: " .. tostring(problem):gsub("%c", " "):sub(1, 400)
  if os.getenv("ADVISOR_DEBUG") then io.stderr:write(text, "\n") end
  if not quietly then pcall(send, text) end
end
