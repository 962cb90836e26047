package shell_test

import (
	"strings"
	"testing"

	"rouse/agent/tool"
)

// TestGuard: YOA-05, commands that would destroy the machine are refused anywhere in a script.
// Commands that only look similar are not. No command here is run.
func TestGuard(t *testing.T) {
	t.Parallel()
	inOrder(t)
	b := newBench(t)
	for _, deadly := range []string{
		`rm -rf /`, `rm -r -f /`, `rm -fr '/'`, `rm --recursive /*`, `sudo rm -rf /etc`, `rm -rf ~`, `rm -rf "$HOME"`, `rm -rf ${HOME}/`, `env A=1 rm -rf /usr/`, `true && rm -rf / || true`, `/bin/rm -rf //`,
		`sh -c 'rm -rf /'`, `bash -c "true; bash -c 'rm -rf /'"`, `nohup nice -n 5 rm -rf /home`, `timeout 5 rm -rf /`,
		`sudo sh -c 'rm -rf /'`, `sudo dd if=a of=/dev/sda`, `eval rm -rf /`, `sudo -u root rm -rf /`, `find . -exec rm -rf / ;`, `busybox sh -c 'rm -rf /'`, `xargs -I {} sh -c 'rm -rf /'`, `flock lock rm -rf /`, `echo 'rm -rf /' | sh`, `env -S 'rm -rf /'`, "bash <<'E'\nrm -rf /\nE",
		`mkfs /dev/sda1`, `mkfs.ext4 x`, `echo x | mkfs.vfat y`,
		`dd if=/dev/zero of=/dev/sda`, `dd of=/dev/nvme0n1 bs=1M`, `echo x > /dev/sda`, `cat a >> /dev/mem`, `echo > '/dev/../dev/sda'`,
		`:(){ :|:& };:`, `f() { f & f; }; f`, `f() { f | f; }`,
	} {
		if n := b.need(deadly); n.Refused == nil || n.Refused.Kind != tool.KindRejected {
			t.Errorf("%s: %+v", deadly, n)
		}
		if e, _ := b.call("bash", map[string]any{"command": deadly}); e.OK || e.Kind != tool.KindRejected {
			t.Errorf("%s: %+v", deadly, e)
		}
	}

	for _, harmless := range []string{`rm -rf ./build`, `rm -rf sub/dir`, `rm /tmp/x`, `rm -r /tmp/x`, `echo 'rm -rf /'`, `ls -r /`, `grep -r mkfs /etc`, `dd if=a of=b`, `dd if=/dev/zero of=x`, `echo x > /dev/null`, `cat a 2>/dev/null`,
		`f() { echo f; }; f`, `f() { g | h; }`, `rm -rf "$DIR"`, `echo mkfs`, `sudo echo rm -rf /`, `echo 'rm -rf /' | cat`, "cat <<'E'\nrm -rf /\nE"} {
		if n := b.need(harmless); n.Refused != nil {
			t.Errorf("%s: %+v", harmless, n.Refused)
		}
	}
}

// TestDeepLines checks that a deeply nested line is parsed quickly. Visiting nested parts
// repeatedly would take minutes.
func TestDeepLines(t *testing.T) {
	t.Parallel()
	inOrder(t)
	b := newBench(t)
	nested := func(n int, open, inner, shut string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
	}
	for _, line := range []string{
		nested(5000, "( ", "a", ")"), nested(4000, "{ ", "a", ";}"), nested(5000, "$(", "a", ")"), nested(3000, "$((", "1", "))"), nested(3000, `"$(`, "a", `)"`), nested(3000, "${a:-", "a", "}"),
		nested(1500, "a(){ b|", "c", ";}"), nested(2000, "a(){ ", "b|c", ";}"), "f(){ " + strings.Repeat("a|", 7000) + "a; }", "f(){ " + strings.Repeat("{ a& ", 1500) + strings.Repeat("} ", 1500) + "; }",
		"sh " + strings.Repeat("'sh a b c d' ", 1100), strings.Repeat("sh -c 'a'; ", 1400), strings.Repeat("<<A ", 3000), strings.Repeat("`", 15000),
	} {
		if n := b.need(line); n.Refused == nil && n.MissingGrant == "" {
			t.Errorf("%.40s…: %+v", line, n)
		}
	}
}
