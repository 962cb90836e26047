package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"rouse/agent"
	"rouse/agent/loop"
	"rouse/agentdb"
	"rouse/agentdb/ledger"
	"rouse/agentdb/sqlite"
	"rouse/internal/domain"
	"rouse/skills"
)

const (
	benchStored = 1000 // calls of storage in one run
	benchPaused = 200  // runs that wait

	// maxPaused is what a run that waits may take of the memory of the host, in bytes.
	maxPaused = 2 << 10
)

// benchStoring stores as many values as it is asked for, and benchPausing asks its owner something and waits.
const (
	benchStoring = `export async function execute(args, host) {
		for (let i = 0; i < args.n; i++) await host.storage.set("row-" + i, {day: "2026-11-23", amount: i});
		return { n: args.n };
	}`
	benchPausing = `export async function execute(args, host) {
		host.run.reportStep("ask");
		const answer = await host.run.requestInput({ title: "Go on?", message: "Is it right?" });
		return { answer };
	}`
)

// moduleRuns runs modules as a daemon does: with a ledger, the storage of their skills and the record of each call.
type moduleRuns struct {
	dir       string
	ledger    *ledger.Ledger
	databases *agentdb.Pool
	runner    *agent.Runner
}

func newModuleRuns(ctx context.Context) (b *moduleRuns, err error) {
	b = &moduleRuns{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()

	if b.dir, err = os.MkdirTemp("", "rouse-bench-module-runs-"); err != nil {
		return b, err
	}
	if b.ledger, err = ledger.Open(ctx, ledger.Options{Path: filepath.Join(b.dir, "ledger.db"), Blobs: filepath.Join(b.dir, "blobs")}); err != nil {
		return b, err
	}
	if b.databases, err = agentdb.NewPool(agentdb.PoolOptions{Dir: filepath.Join(b.dir, "agents")}); err != nil {
		return b, err
	}
	if b.runner, err = agent.New(agent.Options{Ledger: b.ledger, Databases: b.databases, Manifests: filepath.Join(b.dir, "manifests"), Storage: filepath.Join(b.dir, "storage")}); err != nil { //nolint:contextcheck // its folder is new: there is nothing to clean up
		return b, err
	}

	plan := agent.Plan{Agents: map[string]agent.Agent{"clerk": {Name: "clerk", Workdir: filepath.Join(b.dir, "work"), Bounds: loop.Bounds{Calls: 2 * benchStored, Wall: time.Hour}}}, Jobs: map[string]agent.Job{}}
	for name, source := range map[string]string{"storing": benchStoring, "pausing": benchPausing} {
		s, err := b.skill(name, source)
		if err != nil {
			return b, err
		}
		plan.Jobs[name] = agent.Job{Name: name, Agent: "clerk", Skill: s, Input: map[string]any{"n": benchStored}}
	}
	b.runner.Set(plan)
	return b, nil
}

// skill writes a skill and reads it.
func (b *moduleRuns) skill(name, source string) (*skills.Skill, error) {
	folder, err := (skills.Scaffold{Name: name, Mode: skills.ModeFlow, Author: "rouse"}).Write(b.dir)
	if err != nil {
		return nil, err
	}
	manifest, err := os.ReadFile(filepath.Join(folder, "manifest.json"))
	if err != nil {
		return nil, err
	}

	var m map[string]any
	if err := json.Unmarshal(manifest, &m); err != nil {
		return nil, err
	}
	delete(m, "llmUsage")
	m["permissions"] = []any{map[string]string{"kind": "storage", "scope": "own", "description": "what is measured"}}
	m["inputSchema"], m["outputSchema"] = map[string]string{"type": "object"}, map[string]string{"type": "object"}
	m["sandbox"] = map[string]any{"isolation": "standard", "maxExecutionMs": 300_000, "maxMemoryMB": 64, "allowedGlobals": []string{}, "networkRules": []any{}}
	if manifest, err = json.Marshal(m); err != nil {
		return nil, err
	}

	for file, text := range map[string][]byte{"manifest.json": manifest, "module.ts": []byte(source)} {
		if err := os.WriteFile(filepath.Join(folder, file), text, 0o600); err != nil {
			return nil, err
		}
	}
	s, problems := skills.Load(folder)
	if s == nil || s.Manifest == nil {
		return nil, fmt.Errorf("the skill %s of the measurement is wrong: %v", name, problems)
	}
	return s, nil
}

func (b *moduleRuns) close() error {
	var err error
	if b.databases != nil {
		err = b.databases.Close()
	}
	if b.ledger != nil {
		err = errors.Join(err, b.ledger.Close())
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// run runs a job once, until it ends or waits.
func (b *moduleRuns) run(ctx context.Context, job string) error {
	accepted, err := b.ledger.Enqueue(ctx, ledger.Request{Job: job, Agent: "clerk", Trigger: domain.TriggerManual})
	if err != nil {
		return err
	}
	run, a, err := b.ledger.StartAttempt(ctx, accepted[0].Run)
	if err != nil {
		return err
	}

	res, err := b.runner.Execute(ctx, run, a)
	if err != nil {
		return err
	}
	if res.Wait == nil && res.Outcome != domain.OutcomeSuccess {
		return fmt.Errorf("a run of the measurement ended in %s: %s", res.Outcome, res.Error)
	}
	if res.Wait != nil {
		res.Wait.Expires = time.Hour
	}
	return b.ledger.Finish(ctx, a, res)
}

// stored measures the calls of storage of one run, and the same writes into a bare database, in ms.
func (b *moduleRuns) stored(ctx context.Context) (calls, bare float64, err error) {
	if err := os.RemoveAll(filepath.Join(b.dir, "storage")); err != nil {
		return 0, 0, err
	}
	if calls, err = timed(func() error { return b.run(ctx, "storing") }); err != nil {
		return 0, 0, err
	}

	db, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(b.dir, "bare.db"), ApplicationID: 1, Readers: 1})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, db.Close(), os.Remove(filepath.Join(b.dir, "bare.db"))) }()
	if err := db.Do(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`create table entries (key text primary key, value text not null) without rowid, strict`)
		return err
	}); err != nil {
		return 0, 0, err
	}

	bare, err = timed(func() error {
		for i := range benchStored {
			if err := db.Do(ctx, func(tx *sqlite.Tx) error {
				_, err := tx.Exec(`insert into entries (key, value) values (?1, ?2) on conflict (key) do update set value = excluded.value`, fmt.Sprint("row-", i), fmt.Sprintf(`{"amount":%d,"day":"2026-11-23"}`, i))
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return calls, bare, err
}

// paused is what each of some runs that wait takes of the memory of this process, in bytes, and how many processes they have
// in all; below 0 where the system does not tell.
func (b *moduleRuns) paused(ctx context.Context, runs int) (memory float64, processes int, err error) {
	if err := b.run(ctx, "pausing"); err != nil { // what is there once for all
		return 0, 0, err
	}

	before := liveHeap()
	for range runs {
		if err := b.run(ctx, "pausing"); err != nil {
			return 0, 0, err
		}
	}
	memory = max(float64(liveHeap())-float64(before), 0) / float64(runs)
	return memory, childProcesses(), nil
}

// childProcesses is how many processes this one has begun that are not gone, below 0 where there is no /proc.
func childProcesses() int {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return -1
	}

	n := 0
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil { // it has ended meanwhile
			continue
		}
		// The name stands in brackets and may hold anything; behind it come the state and the parent.
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			n++
		}
	}
	return n
}

// liveHeap is what is in use, in bytes.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
