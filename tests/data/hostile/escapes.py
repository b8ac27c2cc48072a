"""Control sequences for whoever reads the output on a terminal or a page."""
import os
text = (
    b"\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b]8;;http://x\x1b\\\x9b5n\x1bP$q\x1b\\\x08\x08\r\x7f"
    b"\xe2\x80\xae reversed \xe2\x81\xa6<script>alert(1)</script>\n::error::x\n##vso[task.complete]\n"
    b"\xff\xfe\x00\xc0\xaf\n"
)
os.write(1, text)
os.write(2, text)
os._exit(1)
