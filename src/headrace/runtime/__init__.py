"""Time: clocks, the timing wheel, timers, and the purgatory of operations that cannot be answered yet. No I/O."""
