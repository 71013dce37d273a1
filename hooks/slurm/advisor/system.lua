-- The few system calls the hooks need: native.so where it was compiled and loads, else lua-posix.

local use = ...

local open = package.loadlib(use("home") .. "/native.so", "luaopen_advisor")
return open and open() or use("portable")
