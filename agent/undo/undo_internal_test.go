package undo

import (
	"testing"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agentdb/changelog"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
)

func TestWanted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		res  ledger.Result
		want bool
	}{
		"success":       {ledger.Result{Outcome: domain.OutcomeSuccess}, false},
		"error":         {ledger.Result{Outcome: domain.OutcomeError}, true},
		"timeout":       {ledger.Result{Outcome: domain.OutcomeTimeout}, true},
		"budget":        {ledger.Result{Outcome: domain.OutcomeBudget}, true},
		"cancelled":     {ledger.Result{Outcome: domain.OutcomeCancelled}, true},
		"interrupted":   {ledger.Result{Outcome: domain.OutcomeInterrupted}, false},
		"asks":          {ledger.Result{Outcome: domain.OutcomeError, Wait: &inbox.Question{}}, false},
		"not collected": {ledger.Result{Outcome: domain.OutcomeError, Kind: "checkout"}, false},
		"not pushed":    {ledger.Result{Outcome: domain.OutcomeError, Kind: "push"}, false},
	} {
		if got := Wanted(c.res); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestResultTexts(t *testing.T) {
	t.Parallel()
	changed, conflict := []file.Undone{{}}, []file.Undone{{Why: "changed later"}, {}}
	for _, c := range []struct {
		res       Result
		places    string
		conflicts int64
	}{
		{Result{Database: changelog.Undone{Changes: 2}}, "the database", 0},
		{Result{Files: changed}, "files", 0},
		{Result{Files: conflict, Database: changelog.Undone{Changes: 1, ConflictCount: 3}}, "files and the database", 4},
	} {
		if got := c.res.places(); got != c.places {
			t.Errorf("places: %q, want %q", got, c.places)
		}
		if got := c.res.conflicts(); got != c.conflicts {
			t.Errorf("conflicts: %d, want %d", got, c.conflicts)
		}
	}
}

func TestEffectOf(t *testing.T) {
	t.Parallel()
	program := tool.Spec{Writes: tool.WritesPlanned}
	for name, c := range map[string]struct {
		call ledger.Call
		want string
	}{
		"read":              {ledger.Call{Effect: domain.EffectRead, State: domain.CallDone}, ""},
		"done":              {ledger.Call{Effect: domain.EffectExternal, State: domain.CallDone, Envelope: []byte(`{"result":{"exit_code":0}}`)}, "did"},
		"program failed":    {ledger.Call{Effect: domain.EffectExternal, State: domain.CallDone, Envelope: []byte(`{"ok":true,"result":{"exit_code":1}}`)}, "may have done before it failed"},
		"program text":      {ledger.Call{Effect: domain.EffectExternal, State: domain.CallDone, Envelope: []byte(`{"ok":true,"result":{"text":"Exit code: 2\nx"}}`)}, "may have done before it failed"},
		"failed":            {ledger.Call{Effect: domain.EffectExternal, State: domain.CallFailed, Envelope: []byte(`{"ok":false,"kind":"execution_error","message":"no","retryable":true}`)}, "may have done before it failed"},
		"denied":            {ledger.Call{Effect: domain.EffectExternal, State: domain.CallFailed, Envelope: []byte(`{"ok":false,"kind":"user_denied","message":"no","retryable":false}`)}, ""},
		"program not found": {ledger.Call{Effect: domain.EffectExternal, State: domain.CallFailed, Envelope: []byte(`{"ok":false,"kind":"not_found","message":"no","retryable":false}`)}, ""},
		"cut off":           {ledger.Call{Effect: domain.EffectExternal, State: domain.CallUncertain}, "may have done"},
		"failed write":      {ledger.Call{Effect: domain.EffectWrite, State: domain.CallFailed}, ""},
	} {
		if got := effectOf(program, c.call); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestUndoable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		writes tool.Writes
		state  domain.CallState
		kept   bool
		want   bool
	}{
		{tool.WritesRows, domain.CallDone, false, true},
		{tool.WritesFiles, domain.CallDone, false, true},
		{tool.WritesPlanned, domain.CallDone, true, true},
		{tool.WritesPlanned, domain.CallDone, false, false},
		{tool.WritesPlanned, domain.CallUncertain, true, false},
		{tool.WritesElsewhere, domain.CallDone, true, false},
	} {
		if got := undoable(c.writes, c.state, c.kept); got != c.want {
			t.Errorf("undoable(%v, %v, %t) = %t", c.writes, c.state, c.kept, got)
		}
	}
}
