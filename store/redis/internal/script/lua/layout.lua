-- A bucket is a head, slots, limits, and what is held: see docs/format/redis.md. Parsed, it is one list of words without the
-- limits: 11 for the head, 6 for each slot, and 6 for each limit of slots.
local HEAD, SLOT, HEADSIZE, LIMIT = '>BI4I4i4I4I4I4I4I4I2I2', 'i4I4i4I4i4I4', 37, '>I2BI4I4I4I4ddI4I4I4I4'

-- A limit that steps, a quota or a balance, is {length, flags, burst, reading, first instant and last instant of the window in
-- which the clock reads that, amount, longest window, length of the window's text}. A balance has the amount 0.
local STEPS = '>I2BI4I4i4I4i4I4i4I4I4I4I4I4B'
