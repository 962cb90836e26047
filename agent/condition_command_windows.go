package agent

import (
	"os"
	"os/exec"
)

// commandNames are the variables that a condition's command is given.
var commandNames = []string{"PATH", "PATHEXT", "SystemRoot", "USERPROFILE", "TEMP", "TMP", "LANG", "TZ"}

// ownGroup does nothing here: Windows has no process groups that can be ended as one.
func ownGroup(*exec.Cmd) {}

// killGroup ends the command itself.
func killGroup(p *os.Process) error { return p.Kill() }
