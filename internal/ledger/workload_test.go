package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/steps"
	"rouse/internal/ledger/store"
)

// workloadIn is the environment variable with the folder of the ledger that this program fills.
// workloadIs selects the workload: busy, migrated, or the number of runs of each agent on a failing
// disk.
const (
	workloadIn = "ROUSE_TEST_WORKLOAD_IN"
	workloadIs = "ROUSE_TEST_WORKLOAD_IS"
)

func beWorkload(dir string) (status int) {
	options := ledger.Options{Path: filepath.Join(dir, "ledger.db"), Blobs: filepath.Join(dir, "blobs")}
	run := busy
	if each, err := strconv.Atoi(os.Getenv(workloadIs)); err == nil {
		run = func(o ledger.Options) error { return persevering(o, each) }
	} else if os.Getenv(workloadIs) == "migrated" {
		run = func(o ledger.Options) error {
			l, err := ledger.OpenMigrating(context.Background(), o, secondMigration)
			if err != nil {
				return err
			}
			return l.Close()
		}
	}
	if err := run(options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// busy opens a ledger several times, as consecutive daemons do, and lets three agents use it at
// once. It writes each recorded row to standard output.
func busy(options ledger.Options) error {
	for life := range 3 {
		open := ledger.Open
		if life == 1 { // keeps writes in the log for a while
			open = ledger.OpenLate
		}
		l, err := open(context.Background(), options)
		if err != nil {
			return err
		}

		err = threeAgents(func(agent int) error { return work(l, agent, life) })
		if life == 0 {
			_, backup := l.Backup(context.Background(), store.BackupSpec{})
			err = errors.Join(err, backup)
		}
		if err := errors.Join(err, l.Close()); err != nil {
			return err
		}
	}
	return nil
}

func threeAgents(do func(agent int) error) error {
	var agents sync.WaitGroup
	errs := make([]error, 3)
	for agent := range errs {
		agents.Go(func() { errs[agent] = do(agent) })
	}
	agents.Wait()
	return errors.Join(errs...)
}

// persevering uses a ledger with a disk that sometimes fails. After a failure it looks up the key
// to find out whether the write is recorded.
func persevering(options ledger.Options, each int) error {
	ctx := context.Background()
	var l *ledger.Ledger
	if err := again(func() (err error) { l, err = ledger.Open(ctx, options); return err }); err != nil {
		return err
	}

	err := threeAgents(func(agent int) error {
		for i := range each {
			request := ledger.Request{Job: fmt.Sprint("j", agent), Agent: "a", Trigger: domain.TriggerAPI, Key: fmt.Sprint(agent, ".", i)}
			var run ledger.Run
			err := again(func() error {
				if _, err := l.Enqueue(ctx, request); err != nil {
					if _, found, _ := l.Runs.ByKey(ctx, request.Key); found {
						say("kept")
					}
					return err
				}
				var found bool
				var err error
				if run, found, err = l.Runs.ByKey(ctx, request.Key); err == nil && !found {
					err = errors.New(request.Key + " was accepted and is not there")
				}
				return err
			})
			if err == nil {
				err = again(func() error {
					err := l.FinishUnstarted(ctx, run.ID, ledger.Result{Outcome: domain.OutcomeSkipped})
					if errors.Is(err, ledger.ErrNotClaimable) { // by the previous try, which reported a failure
						return nil
					}
					return err
				})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, again(l.Close))
}

// again calls do until it succeeds.
func again(do func() error) (err error) {
	for range 60 {
		if err = do(); err == nil {
			return nil
		}
	}
	return err
}

func work(l *ledger.Ledger, agent, life int) error {
	ctx := context.Background()
	for i := range 5 {
		key := fmt.Sprintf("%d.%d.%d", life, i, agent)
		accepted, err := l.Enqueue(ctx, ledger.Request{Job: fmt.Sprint("j", agent), Agent: "a", Trigger: domain.TriggerAPI, Key: key})
		if err != nil {
			return err
		}
		say("accepted " + key)

		_, a, err := l.StartAttempt(ctx, accepted[0].Run)
		if err != nil {
			return err
		}
		now := time.Now()
		step := steps.Step{Number: 1, StartedAt: now, FinishedAt: now, Text: "as ever"}
		// A value with its own file, which all three agents write at about the same time.
		call := ledger.Call{Step: 1, ID: "c", Key: key, Tool: "t", Effect: domain.EffectWrite, State: domain.CallDone, StartedAt: now, FinishedAt: now, Envelope: value(life, i)}
		err = errors.Join(l.Steps.Record(ctx, a, steps.StepStarted(step), steps.CallStarted(call)), l.Steps.FinishCall(ctx, a, call), l.Steps.FinishStep(ctx, a, step))
		if err != nil {
			return err
		}
		say("called " + key)

		if err := l.Finish(ctx, a, ledger.Result{Outcome: domain.OutcomeSuccess, Steps: 1, Calls: 1}); err != nil {
			return err
		}
		say("finished " + key)
	}
	return nil
}

// say writes a line in a single call, as a trace records it.
func say(line string) { _, _ = os.Stdout.WriteString(line + "\n") }

func value(life, i int) json.RawMessage {
	text, _ := json.Marshal(strings.Repeat(fmt.Sprintf("%d.%d ", life, i), 20_000))
	return text
}
