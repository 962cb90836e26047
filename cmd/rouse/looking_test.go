package main

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// makers lists commands that may create a home because they start, plan or store something. It also
// lists commands that do not exit, or that have no single home.
var makers = strings.Fields("backfill backup call completion dashboard import init mcp mcp-servers.show mcp-servers.approve " +
	"mcp-servers.revoke mcp-servers.sign-in new notify open replay restore run secrets.set secrets.remove selftest serve service " +
	"skills.install skills.pin skills.remove watch")

// TestLookingMakesNoHome runs every other command without a home, with the arguments of its usage.
// No command may create one.
func TestLookingMakesNoHome(t *testing.T) {
	endtoend.Unraced(t)
	dir := cmdtest.Write(t, map[string]string{"rouse.yaml": `version: 1
home: ./home
agents: [{name: a, self_scheduling: {mode: ambient}}]
jobs: [{name: j, agent: a, schedule: daily at 08:00, playbook: [{call: notify, with: {title: hello}}]}]
`})
	config, home := filepath.Join(dir, "rouse.yaml"), filepath.Join(dir, "home")
	t.Setenv("HOME", dir)
	t.Chdir(dir)
	arguments := map[string]string{"JOB": "j", "AGENT": "a", "TOOL": "notify", "KEY": "jobs"}

	var lines [][]string
	eachCommand(newRoot(&cli{}), func(cmd *cobra.Command) {
		line := strings.Fields(cmd.CommandPath())[1:]
		for i := range line {
			if slices.Contains(makers, strings.Join(line[:i+1], ".")) {
				return
			}
		}
		for _, a := range argumentsOf(cmd) {
			line = append(line, cmp.Or(arguments[a.name], "1"))
		}
		lines = append(lines, line)
	})
	for _, more := range []string{"pause", "wake", "resume --all", "inbox --closed", "doctor --offline", "runs --all",
		"budget --json", "ledger --json", "ledger backups", "next --cost", "grants trust a", "db a --json", "db a schema", "db a log", "db a views",
		"db a backups", "db a query select_1", "db a export select_1", "db a undo 1"} {
		lines = append(lines, strings.Fields(more))
	}
	if len(lines) < 70 {
		t.Errorf("only %d commands: %q", len(lines), lines)
	}

	for _, line := range lines {
		if slices.Equal(line, []string{"pause", "j"}) {
			continue // a pause is stored in the home
		}
		var out, problems bytes.Buffer
		run(t.Context(), append(line, "--config", config), strings.NewReader(""), &out, &problems)
		if _, err := os.Stat(home); err == nil {
			t.Errorf("rouse %s made a home:\n%s%s", strings.Join(line, " "), out.String(), problems.String())
			if err := os.RemoveAll(home); err != nil {
				t.Fatal(err)
			}
		}
		if said := out.String() + problems.String(); strings.Contains(said, filepath.Join(os.TempDir(), ".rouse-")) {
			t.Errorf("rouse %s names the folder in place of the home:\n%s", strings.Join(line, " "), said)
		}
	}
}
