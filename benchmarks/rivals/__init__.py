"""The compared programs: each module is built in a process of its own.

`side_by_side.take_turns` calls `build(**settings)` there, and the function that it returns.
"""
