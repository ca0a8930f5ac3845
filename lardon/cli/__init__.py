"""The `lardon` command. Needs the extra `cli`; nothing here is imported by `import lardon`."""
