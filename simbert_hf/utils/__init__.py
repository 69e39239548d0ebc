"""What every part uses: files and text, atomic writes, extras, flags, figures."""
