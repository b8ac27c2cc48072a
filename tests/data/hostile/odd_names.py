"""Names that are no text, and names that look like something else."""
import os
import tools
names = [b"a\nb", b"\xff\xfe\xfd", b"\x1b[31m", b"-rf", b" ", b"x" * 255, b"..\\..\\x", b"$(id)", b"\xe2\x80\xaegpj.exe",
         b"con", b"a\tb", b"*", b"...", b"\x7f", b"';--"]
for folder in (b"/logs/", b"/tmp/", b"/logs/real/"):
    os.makedirs(folder, exist_ok=True)
    for name in names:
        open(folder + name, "wb").close()
    os.write(2, b"\n".join(os.listdir(folder)) + b"\n")
tools.tell([], names=len(names))
