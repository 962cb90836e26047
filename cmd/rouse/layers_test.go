package main

import (
	"encoding/json"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"rouse/cmd/internal/endtoend"
)

// mayImport lists the packages of the module that each package may import. A package of internal/
// without a row is a leaf: it imports no package of the module, and every package may import it. A
// "*" matches one element of a path.
var mayImport = map[string][]string{
	"agent": {
		"agentdb/schema", "internal/ledger/*", "agent/plan", "agent/loop", "agent/tool", "agent/tool/*", "agent/tool/moduleapi/signin",
		"agent/tool/moduleapi/store", "agent/preflight", "agent/preview", "agent/redact", "agent/loop/memory",
		"agent/model", "agent/model/*", "internal/ledger", "agentdb", "agentdb/pool", "skills", "skills/install",
		"skills/module", "scheduler/schedule", "agent/sandbox", "agent/checkout", "agent/checkout/runclone",
		"agent/record", "agent/undo", "agent/failover", "agent/notice", "agent/runlog", "agent/spend", "agent/plan/vars",
		"agent/blocker", "agent/clirun", "agent/condition", "agent/history", "agent/permit", "agent/programs", "agent/prompt", "agent/servers",
		"agent/trigger",
	},
	"agent/blocker": {
		"agent/failover", "agent/plan", "agent/preflight", "agent/programs", "agent/servers", "agent/tool/*", "agentdb/pool", "internal/ledger", "internal/ledger/*",
	},
	"agent/checkout":             {"agent/sandbox"},
	"agent/checkout/pullrequest": {},
	"agent/checkout/runclone":    {"agent/checkout", "agent/checkout/pullrequest", "agent/tool", "internal/ledger", "internal/ledger/*"},
	"agent/clirun": {
		"agent/loop", "agent/model", "agent/model/playbook", "agent/plan", "agent/runlog", "agent/spend", "agent/tool", "agent/tool/*", "internal/ledger", "internal/ledger/*",
	},
	"agent/condition": {
		"agent/model/playbook", "agent/permit", "agent/plan", "agent/plan/vars", "agent/programs", "agent/runlog",
		"agent/tool", "agent/tool/shell", "agentdb", "agentdb/pool", "internal/ledger", "internal/ledger/*",
	},
	"agent/eval": {"agent", "agent/plan", "agent/loop", "agent/model", "agentdb", "agentdb/pool", "internal/ledger", "internal/ledger/*"},
	"agent/eval/cases": {
		"agent", "agent/plan", "agent/eval", "agent/model/replay", "agent/tool", "agent/tool/moduleapi", "agent/tool/shell",
		"internal/ledger", "internal/ledger/*", "skills",
	},
	"agent/failover": {"agent/loop", "agent/model", "agent/notice", "agent/plan", "internal/ledger", "internal/ledger/*"},
	"agent/history": {
		"agent/loop", "agent/model", "agent/plan", "agent/tool", "agent/tool/*", "agentdb/pool", "internal/ledger", "internal/ledger/*",
	},
	"agent/loop":            {"agent/tool", "agent/model", "agent/loop/memory", "agent/loop/textcall"},
	"agent/loop/memory":     {},
	"agent/loop/textcall":   {},
	"agent/model":           {},
	"agent/model/anthropic": {"agent/model", "agent/model/wire"},
	"agent/model/gemini":    {"agent/model", "agent/model/wire"},
	"agent/model/modeltest": {"agent/model"},
	"agent/model/ollama":    {"agent/model", "agent/model/wire"},
	"agent/model/openai":    {"agent/model", "agent/model/wire"},
	"agent/model/playbook":  {"agent/model"},
	"agent/model/replay":    {"agent/model"},
	"agent/model/wire":      {"agent/model", "agent/redact"},
	"agent/notice":          {"agent/model", "agent/model/playbook", "agent/plan", "agent/plan/vars", "internal/ledger", "internal/ledger/*"},
	"agent/permit": {
		"agent/loop", "agent/model/playbook", "agent/plan", "agent/tool", "agent/tool/*", "internal/ledger", "internal/ledger/*",
	},
	"agent/plan": {
		"agent/checkout", "agent/loop", "agent/model", "agent/model/playbook", "agent/redact", "agent/tool", "agent/tool/*",
		"agent/tool/moduleapi/signin", "internal/ledger", "internal/ledger/store", "scheduler/schedule", "skills",
	},
	"agent/plan/vars": {"agent/plan", "internal/ledger", "internal/ledger/*"},
	"agent/preflight": {},
	"agent/preview":   {"agent/sandbox", "agentdb/tabular"},
	"agent/programs": {
		"agent/plan", "agent/preview", "agent/runlog", "agent/sandbox", "agent/tool", "agent/tool/*", "internal/ledger", "skills",
		"skills/install", "skills/module",
	},
	"agent/prompt": {
		"agent/permit", "agent/plan", "agent/plan/vars", "agent/programs", "agent/tool", "agent/tool/git", "agentdb", "agentdb/pool",
		"internal/ledger", "internal/ledger/*", "skills", "skills/install",
	},
	"agent/record":  {"agent/loop", "agent/model", "agent/model/replay", "agent/redact", "agent/tool", "internal/ledger", "internal/ledger/*"},
	"agent/redact":  {},
	"agent/runlog":  {"agent/loop", "agent/redact", "internal/ledger", "internal/ledger/*"},
	"agent/sandbox": {},
	"agent/servers": {
		"agent/permit", "agent/plan", "agent/preflight", "agent/programs", "agent/runlog", "agent/tool", "agent/tool/*",
		"agent/tool/moduleapi/signin", "internal/ledger", "internal/ledger/*", "skills",
	},
	"agent/spend": {"agent/failover", "agent/loop", "agent/model", "agent/notice", "agent/plan", "agent/runlog", "internal/ledger", "internal/ledger/budget"},
	"agent/tool":  {"agent/model", "internal/ledger", "internal/ledger/*"},
	"agent/tool/control": {
		"agent/tool", "agent/preview", "agentdb", "agentdb/tabular", "internal/ledger", "agent/model",
		"agent/loop/memory",
	},
	"agent/tool/db": {
		"agent/tool", "agent/preview", "agentdb", "agentdb/pool", "internal/ledger", "internal/ledger/*", "agent/model",
		"agent/loop/memory", "agentdb/changelog", "agentdb/schema", "agentdb/transfer", "agentdb/view",
	},
	"agent/tool/executor": {"agent/tool", "agent/tool/file", "agent/tool/shell", "agent/model", "internal/ledger", "internal/ledger/*", "agent/sandbox"},
	"agent/tool/file": {
		"agent/tool", "agent/preview", "agentdb/tabular", "internal/ledger", "internal/ledger/*", "agent/model", "agent/loop/memory",
	},
	"agent/tool/git": {"agent/tool", "agent/tool/shell"},
	"agent/tool/moduleapi": {
		"agent/tool", "agent/tool/moduleapi/signin", "agent/tool/moduleapi/store", "agent/tool/mcp", "agent/tool/web",
		"agent/tool/shell", "agent/model", "agent/redact", "internal/ledger", "internal/ledger/*", "skills",
	},
	"agent/tool/moduleapi/signin":            {"skills"},
	"agent/tool/moduleapi/signin/signintest": {"agent/tool/moduleapi/signin"},
	"agent/tool/moduleapi/store":             {"internal/storage/sqlite"},
	"agent/tool/mcp":                         {"agent/tool", "agent/tool/shell", "agent/tool/web", "agent/model", "agent/sandbox"},
	"agent/tool/next":                        {"agent/tool", "internal/ledger", "internal/ledger/*", "scheduler/schedule"},
	"agent/tool/shell":                       {"agent/tool", "agent/tool/file", "internal/ledger", "internal/ledger/*", "agent/sandbox", "agent/redact"},
	"agent/tool/skill":                       {"agent/tool", "agent/model", "skills"},
	"agent/tool/web":                         {"agent/tool"},
	"agent/tool/workspace":                   {"agent/tool", "internal/ledger", "internal/ledger/*"},
	"agent/trigger":                          {"agent/condition", "agent/plan", "agent/runlog", "agent/tool", "internal/ledger", "internal/ledger/*"},
	"agent/undo": {
		"agent/checkout", "agent/checkout/runclone", "agent/tool", "agent/tool/file", "agentdb", "agentdb/pool",
		"internal/ledger", "internal/ledger/*", "agentdb/changelog",
	},
	"agentdb": {
		"internal/storage/dbfile", "internal/storage/sqlite", "agentdb/bulk", "agentdb/changelog", "agentdb/dberr",
		"agentdb/lineage", "agentdb/schema", "agentdb/sqltext", "agentdb/sqlvalue", "agentdb/tabular", "agentdb/transfer",
		"agentdb/view",
	},
	"agentdb/bulk": {
		"agentdb/changelog", "agentdb/dberr", "agentdb/schema", "agentdb/sqltext", "agentdb/sqlvalue", "agentdb/tabular",
		"internal/storage/sqlite",
	},
	"agentdb/changelog": {
		"agentdb/dberr", "agentdb/lineage", "agentdb/sqltext", "agentdb/sqlvalue", "agentdb/tabular",
		"internal/storage/sqlite",
	},
	"agentdb/dberr":   {"internal/storage/sqlite"},
	"agentdb/lineage": {"internal/storage/sqlite"},
	"agentdb/placement": {
		"agentdb", "agentdb/pool", "internal/storage/dbfile", "internal/ledger", "internal/ledger/*", "internal/storage/replica",
	},
	"agentdb/pool": {"agentdb", "agentdb/dberr", "agentdb/lineage", "internal/storage/dbfile", "internal/storage/sqlite"},
	"agentdb/schema": {
		"agentdb/changelog", "agentdb/dberr", "agentdb/sqltext", "agentdb/sqlvalue", "agentdb/tabular",
		"internal/storage/sqlite",
	},
	"agentdb/sqltext":  {"agentdb/dberr"},
	"agentdb/sqlvalue": {"agentdb/tabular"},
	"agentdb/tabular":  {},
	"agentdb/transfer": {
		"agentdb/bulk", "agentdb/changelog", "agentdb/dberr", "agentdb/schema", "agentdb/sqltext", "agentdb/sqlvalue",
		"agentdb/tabular", "internal/storage/sqlite",
	},
	"agentdb/view": {
		"agentdb/changelog", "agentdb/dberr", "agentdb/lineage", "agentdb/sqltext", "agentdb/sqlvalue", "agentdb/tabular",
		"internal/storage/sqlite",
	},
	"cmd/internal/access": {"cmd/internal/api"},
	"cmd/internal/api": {
		"agent/checkout", "agent/tool/executor", "internal/ledger", "internal/ledger/*", "agentdb", "agentdb/pool",
		"scheduler/schedule", "skills", "agentdb/changelog", "agentdb/schema", "agentdb/transfer", "agentdb/view",
	},
	"cmd/internal/audit": {"agentdb", "internal/ledger", "internal/ledger/*"},
	"cmd/internal/backup": {
		"agent/tool/shell", "cmd/internal/audit", "cmd/internal/layout", "agentdb", "internal/ledger", "internal/ledger/*",
		"internal/storage/sqlite",
	},
	"cmd/internal/buildinfo": {},
	"cmd/internal/calendars": {"agent/tool/web", "scheduler/calendar", "scheduler/schedule"},
	"cmd/internal/cluster": {
		"cmd/internal/api", "cmd/internal/buildinfo", "cmd/internal/config", "cmd/internal/config/places",
		"cmd/internal/plan", "cmd/internal/replicate/target", "internal/ledger", "internal/ledger/*",
		"internal/storage/objects", "scheduler", "scheduler/dispatch", "watcher",
	},
	"cmd/internal/cmdtest": {},
	"cmd/internal/config": {
		"scheduler/schedule", "agent", "agent/checkout", "agent/plan", "agent/tool", "agent/tool/moduleapi", "agent/tool/mcp", "agent/tool/shell",
		"agent/tool/web", "agent/tool/executor", "skills", "skills/install", "agent/model", "agent/model/playbook",
	},
	"cmd/internal/config/check": {
		"cmd/internal/config", "cmd/internal/config/places", "cmd/internal/config/yaml", "cmd/internal/notify",
		"cmd/internal/webhook", "cmd/internal/layout", "cmd/internal/replicate/target", "scheduler/schedule",
		"scheduler/calendar", "agent", "agent/clirun", "agent/plan", "agent/plan/vars", "agent/tool", "agent/tool/file", "agent/tool/moduleapi", "agent/tool/mcp",
		"agent/tool/shell", "agent/tool/web", "agent/tool/executor", "agent/checkout", "skills", "skills/install",
		"agent/model/playbook", "agent/model/replay",
	},
	"cmd/internal/config/configtest": {"cmd/internal/config", "cmd/internal/config/load", "cmd/internal/config/yaml", "agent"},
	"cmd/internal/config/load":       {"cmd/internal/config", "cmd/internal/config/check", "cmd/internal/config/yaml", "agent/tool"},
	"cmd/internal/config/places":     {"cmd/internal/config"},
	"cmd/internal/config/yaml": {
		"cmd/internal/config", "cmd/internal/config/places", "scheduler/schedule", "watcher/after", "agent", "agent/tool",
		"agent/tool/moduleapi", "agent/redact",
	},
	"cmd/internal/control": {
		"agent/permit", "agent/servers", "agent/record", "cmd/internal/config/places", "cmd/internal/config/yaml", "internal/ledger/*", "agent", "agent/checkout", "agent/checkout/runclone", "agent/model/replay", "agent/plan", "agent/tool",
		"agent/tool/moduleapi", "agent/tool/moduleapi/signin", "agent/tool/mcp", "agent/tool/next", "agent/undo",
		"agentdb", "agentdb/pool", "cmd/internal/access", "cmd/internal/api", "cmd/internal/config",
		"cmd/internal/notify", "cmd/internal/plan", "cmd/internal/web", "cmd/internal/webhook",
		"cmd/internal/why", "internal/ledger", "scheduler", "scheduler/schedule", "skills/install", "watcher", "agentdb/changelog",
	},
	"cmd/internal/daemon":    everything,
	"cmd/internal/dashboard": {"cmd/internal/control", "cmd/internal/doctor", "cmd/internal/reload", "cmd/internal/status", "cmd/internal/why", "internal/ledger/*", "cmd/internal/web", "cmd/internal/api", "internal/ledger", "agentdb", "skills", "skills/install", "agentdb/changelog", "agentdb/schema", "agentdb/transfer", "agentdb/view"},
	"cmd/internal/doctor": {
		"internal/ledger/*", "agent", "agent/permit", "agent/servers", "agent/model", "agent/plan", "agent/sandbox", "agent/tool/moduleapi/signin", "agent/tool/mcp",
		"cmd/internal/api", "cmd/internal/backup", "cmd/internal/config", "cmd/internal/notify",
		"cmd/internal/plan", "cmd/internal/secret", "cmd/internal/service", "cmd/internal/why",
		"internal/ledger", "scheduler/schedule", "skills", "skills/install", "skills/module", "agentdb/pool",
	},
	"cmd/internal/endtoend":         {"cmd/internal/api", "cmd/internal/cmdtest", "cmd/internal/secret", "agent/model"},
	"cmd/internal/endtoend/attack":  {},
	"cmd/internal/endtoend/cluster": {},
	"cmd/internal/endtoend/copies":  {},
	"cmd/internal/endtoend/crash":   {},
	"cmd/internal/endtoend/example": {},
	"cmd/internal/endtoend/files":   {},
	"cmd/internal/heartbeat":        {},
	"cmd/internal/homebackup": {
		"agentdb/pool", "cmd/internal/access", "cmd/internal/api", "cmd/internal/backup", "cmd/internal/buildinfo",
		"cmd/internal/cluster", "cmd/internal/config/places", "cmd/internal/config/yaml", "cmd/internal/homedir",
		"cmd/internal/plan", "cmd/internal/replicate", "cmd/internal/replicate/target", "internal/ledger",
		"internal/ledger/*", "internal/storage/sqlite",
	},
	"cmd/internal/homedir": {
		"agentdb/placement", "cmd/internal/api", "cmd/internal/buildinfo", "cmd/internal/config", "cmd/internal/layout",
		"cmd/internal/service", "internal/ledger", "internal/ledger/*", "internal/storage/sqlite",
	},
	"cmd/internal/imports":   {"agent/tool/shell"},
	"cmd/internal/layout":    {},
	"cmd/internal/logging":   {"agent/redact", "cmd/internal/config"},
	"cmd/internal/mcpserver": {"cmd/internal/api"},
	"cmd/internal/metrics":   {"internal/ledger", "internal/ledger/*", "cmd/internal/api"},
	"cmd/internal/notify":    {"internal/ledger", "internal/ledger/*", "cmd/internal/webhook", "scheduler/schedule"},
	"cmd/internal/plan": {
		"agent", "agent/permit", "agent/plan", "agent/loop", "agent/model", "agent/model/*", "agent/redact", "agent/tool", "agentdb",
		"cmd/internal/api", "cmd/internal/calendars", "cmd/internal/config", "cmd/internal/config/load",
		"cmd/internal/config/places", "cmd/internal/config/yaml", "cmd/internal/notify", "cmd/internal/secret",
		"internal/ledger", "internal/ledger/*", "scheduler", "scheduler/dispatch", "scheduler/schedule", "watcher", "watcher/after", "watcher/match", "agentdb/schema",
	},
	"cmd/internal/releases": {},
	"cmd/internal/reload": {
		"agent", "agent/plan", "agent/redact", "cmd/internal/api", "cmd/internal/cluster", "cmd/internal/config",
		"cmd/internal/logging", "cmd/internal/notify", "cmd/internal/plan", "cmd/internal/supervision", "internal/ledger",
		"scheduler", "scheduler/dispatch", "scheduler/schedule", "watcher",
	},
	"cmd/internal/replicate": {
		"cmd/internal/backup", "agentdb", "agentdb/pool", "internal/ledger", "internal/storage/objects",
		"internal/storage/replica", "internal/storage/sqlite",
	},
	"cmd/internal/replicate/target":        {"internal/storage/objects", "agent/redact"},
	"cmd/internal/replicate/target/s3test": {},
	"cmd/internal/secret":                  {},
	"cmd/internal/service":                 {},
	"cmd/internal/signin":                  {"agent/tool/moduleapi/signin", "agent", "agent/tool/host/signin", "cmd/internal/plan", "cmd/internal/secret"},
	"cmd/internal/status": {
		"agent", "cmd/internal/access", "cmd/internal/api", "cmd/internal/buildinfo", "cmd/internal/cluster",
		"cmd/internal/doctor", "cmd/internal/heartbeat", "cmd/internal/metrics", "cmd/internal/plan", "cmd/internal/reload",
		"cmd/internal/replicate", "cmd/internal/traces", "cmd/internal/why", "internal/ledger",
	},
	"cmd/internal/supervision": {"cmd/internal/plan", "cmd/internal/why"},
	"cmd/internal/terminal":    {},
	"cmd/internal/traces":      {"internal/ledger", "internal/ledger/*"},
	"cmd/internal/upkeep": {
		"agent", "agentdb/pool", "cmd/internal/calendars", "cmd/internal/cluster", "cmd/internal/doctor",
		"cmd/internal/notify", "cmd/internal/plan", "cmd/internal/reload", "cmd/internal/secret", "cmd/internal/why",
		"internal/ledger", "internal/ledger/*", "internal/storage/sqlite", "scheduler/schedule",
	},
	"cmd/internal/web": {
		"cmd/internal/access", "cmd/internal/cluster", "cmd/internal/control", "cmd/internal/doctor", "cmd/internal/homebackup", "cmd/internal/reload", "cmd/internal/status", "cmd/internal/why", "internal/ledger/*", "cmd/internal/api", "internal/ledger", "agentdb", "agentdb/pool", "scheduler/schedule", "scheduler",
		"skills", "skills/install", "agentdb/changelog", "agentdb/transfer",
	},
	"cmd/internal/webhook": {},
	"cmd/internal/why": {
		"agent", "cmd/internal/api", "cmd/internal/config", "cmd/internal/plan", "cmd/internal/webhook", "internal/ledger",
		"internal/ledger/*", "scheduler", "scheduler/schedule", "scheduler/simulate", "watcher", "watcher/settle",
	},
	"cmd/rouse":                      everything,
	"internal/ledger":                {"internal/ledger/artifact", "internal/ledger/claim", "internal/ledger/event", "internal/ledger/fileop", "internal/ledger/inbox", "internal/ledger/incident", "internal/ledger/label", "internal/ledger/maint", "internal/ledger/node", "internal/ledger/outbox", "internal/ledger/pause", "internal/ledger/runs", "internal/ledger/steps", "internal/ledger/wake", "internal/ledger/workspace", "internal/storage/dbfile", "internal/storage/objects", "internal/storage/sqlite", "internal/ledger/store", "internal/ledger/blob", "internal/ledger/budget", "internal/ledger/record"},
	"internal/ledger/ledgertest":     {"internal/ledger/artifact", "internal/ledger/claim", "internal/ledger/event", "internal/ledger/fileop", "internal/ledger/inbox", "internal/ledger/incident", "internal/ledger/integrity", "internal/ledger/label", "internal/ledger/maint", "internal/ledger/pause", "internal/ledger/runs", "internal/ledger/steps", "internal/ledger/wake", "internal/ledger/workspace", "internal/ledger", "internal/ledger/record", "internal/ledger/budget"},
	"internal/ledger/artifact":       {"internal/ledger/blob", "internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/claim":          {"internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/event":          {"internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/fileop":         {"internal/ledger/blob", "internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/inbox":          {"internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/incident":       {"internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/integrity":      {"internal/ledger/blob", "internal/ledger/outbox", "internal/ledger/store", "internal/storage/sqlite"},
	"internal/ledger/label":          {"internal/ledger/inbox", "internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/maint":          {"internal/ledger/blob", "internal/ledger/budget", "internal/ledger/node", "internal/ledger/pause", "internal/ledger/record", "internal/ledger/store", "internal/storage/dbfile", "internal/storage/sqlite"},
	"internal/ledger/node":           {"internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/outbox":         {"internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/pause":          {"internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/runs":           {"internal/ledger/blob", "internal/ledger/record", "internal/ledger/store", "internal/ledger/wake"},
	"internal/ledger/steps":          {"internal/ledger/blob", "internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/store/plantest": {"internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/wake":           {"internal/ledger/pause", "internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/workspace":      {"internal/ledger/artifact", "internal/ledger/blob", "internal/ledger/inbox", "internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/store":          {"internal/storage/dbfile", "internal/storage/objects", "internal/storage/sqlite"},
	"internal/ledger/blob":           {"internal/ledger/store", "internal/storage/objects"},
	"internal/ledger/budget":         {"internal/ledger/record", "internal/ledger/store"},
	"internal/ledger/record":         {"internal/ledger/blob", "internal/ledger/store"},
	"internal/storage/dbfile":        {"internal/storage/sqlite"},
	"internal/storage/objects":       {},
	"internal/storage/replica":       {"internal/storage/dbfile", "internal/storage/objects", "internal/storage/sqlite"},
	"internal/storage/sqlite":        {},
	"scheduler":                      {"scheduler/schedule", "internal/ledger", "internal/ledger/*"},
	"scheduler/calendar":             {"scheduler/schedule"},
	"scheduler/dispatch":             {"internal/ledger", "internal/ledger/*"},
	"scheduler/dispatch/enginetest":  {"scheduler/dispatch", "scheduler/dispatch/river", "internal/ledger", "internal/ledger/*"},
	"scheduler/dispatch/river":       {"scheduler/dispatch", "internal/ledger", "internal/ledger/*"},
	"scheduler/schedule":             {},
	"scheduler/simulate":             {"scheduler", "scheduler/dispatch", "scheduler/schedule", "internal/ledger", "internal/ledger/*"},
	"skills":                         {},
	"skills/install":                 {"skills"},
	"skills/module":                  {"agent/sandbox", "skills"},
	"watcher":                        {"watcher/after", "watcher/fsys", "watcher/match", "watcher/settle", "watcher/tree", "internal/ledger", "internal/ledger/*"},
	"watcher/after":                  {"watcher/fsys", "internal/ledger/*"},
	"watcher/fsys":                   {},
	"watcher/match":                  {},
	"watcher/settle":                 {"watcher/fsys", "watcher/match"},
	"watcher/tree":                   {"watcher/fsys", "watcher/match", "internal/ledger"},
}

// everything lets a package import all others.
var everything = []string{"*", "*/*", "*/*/*", "*/*/*/*"}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "rouse/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}

	var packages []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}

	return packages
}

// leaf reports whether a package is a leaf.
func leaf(name string) bool {
	return strings.HasPrefix(name, "internal/") && mayImport[name] == nil
}

// TestLayers fails on an import that is not in the table, on a package without a row that is not a
// leaf, and on a row without a package.
func TestLayers(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()

	seen := map[string]bool{}
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, "rouse/")
		seen[name] = true
		if mayImport[name] == nil && !leaf(name) {
			t.Errorf("package %s has no row in the table of imports", name)
			continue
		}

		for _, imp := range p.Imports {
			dep, ours := strings.CutPrefix(imp, "rouse/")
			if !ours || leaf(dep) && !leaf(name) {
				continue
			}

			if !slices.ContainsFunc(mayImport[name], func(pattern string) bool {
				ok, _ := path.Match(pattern, dep)
				return ok
			}) {
				t.Errorf("%s imports %s, which the table of imports does not list for it (it may import %v)", name, dep, mayImport[name])
			}
		}
	}

	for name := range mayImport {
		if !seen[name] {
			t.Errorf("the table of imports has a row for %s, which does not exist", name)
		}
	}
}

// maxFanOut is the maximum number of rooms that a package outside cmd may import. Leaves do not
// count. A package and the packages below it count as one, and so do the packages below the
// importing package.
const maxFanOut = 8

// TestFanOut fails if a package outside cmd imports too many others.
func TestFanOut(t *testing.T) {
	endtoend.Unraced(t)
	t.Parallel()
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, "rouse/")
		if strings.HasPrefix(name, "cmd/") {
			continue
		}

		rooms := map[string]bool{}
		for _, imp := range p.Imports {
			dep, ours := strings.CutPrefix(imp, "rouse/")
			if !ours || leaf(dep) {
				continue
			}

			if strings.HasPrefix(dep, name+"/") {
				dep = name + "/…"
			}
			rooms[dep] = true
		}
		// A package and the packages below it count as one.
		for _, dep := range slices.Backward(slices.Sorted(maps.Keys(rooms))) {
			for above := path.Dir(dep); above != "."; above = path.Dir(above) {
				if rooms[above] {
					delete(rooms, dep)
				}
			}
		}

		if len(rooms) > maxFanOut {
			t.Errorf("%s imports %d rooms, at most %d are wanted: %v", name, len(rooms), maxFanOut, slices.Sorted(maps.Keys(rooms)))
		}
	}
}
