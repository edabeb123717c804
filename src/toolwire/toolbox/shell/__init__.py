"""Commands: `bash` for those that end soon, jobs for those that go on."""
