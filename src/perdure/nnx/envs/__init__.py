"""Adapters that make environments of other libraries speak the environment protocol; imported one by one."""
