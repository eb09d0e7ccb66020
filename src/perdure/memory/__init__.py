"""What a process holds beside a run's components: looked at, compared and put back, for `perdure audit`."""
