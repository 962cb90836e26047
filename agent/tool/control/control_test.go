package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rouse/agent/tool"
	"rouse/agent/tool/control"
	"rouse/internal/contract"
	"rouse/internal/ledger"
)

func setup(t *testing.T) (*tool.Registry, *ledger.Ledger) {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { l.Close() })
	tools, err := control.Tools(control.Options{Ledger: l, Channels: []string{"desktop", "ops"}, Default: []string{"desktop"}})
	if err != nil {
		t.Fatal(err)
	}

	r, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}

	return r, l
}

func call(t *testing.T, r *tool.Registry, name, args string) tool.Envelope {
	t.Helper()
	e, err := r.Call(t.Context(), tool.Invocation{Run: 7, Key: "p1"}, name, json.RawMessage(args))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestTodo: OSA-16.
func TestTodo(t *testing.T) {
	row := contract.Of(t, "OSA-16")
	r, _ := setup(t)
	name, field := row.Quote("todo"), row.Quote("markdown")
	args := func(list string) string { return fmt.Sprintf(`{%q:%q}`, field, list) }
	indent := strings.Repeat(" ", row.Number("6"))
	open, done, capital := row.Quote("- [ ]"), row.Quote("- [x]"), row.Quote("- [X]")
	list := "# Plan\n" + open + " one\n" + indent + done + " two\n " + indent + done + " too deep\n" + capital + " three\n* [ ] no"
	if e := call(t, r, name, args(list)); !e.OK || string(e.Result) != `{"items":3,"done":2,"open":1}` {
		t.Errorf("%+v %s", e, e.Result)
	}
	if e := call(t, r, name, args("nothing here")); !e.OK || len(e.Warnings) != 1 {
		t.Errorf("no items: %+v", e)
	}
	if e := call(t, r, name, args(" \n")); string(e.Kind) != row.Quote("invalid_args") {
		t.Errorf("empty: %+v", e)
	}
}

// TestComplete: OSA-17.
func TestComplete(t *testing.T) {
	row := contract.Of(t, "OSA-17")
	r, _ := setup(t)
	name, field := row.Quote("complete"), row.Quote("summary")
	refused := []string{"short", "                              x", "Nothing changed",
		"The task was completed successfully.", "Everything is done, and all looks good!", "------------------------------", "変更なし。"}
	for _, word := range row.Between("refuses", ", in any case") {
		refused = append(refused, word, strings.ToUpper(word), word+".")
	}
	for _, bad := range refused {
		raw, err := json.Marshal(map[string]string{field: bad})
		if err != nil {
			t.Fatal(err)
		}
		if e := call(t, r, name, string(raw)); string(e.Kind) != row.Quote("invalid_args") || e.Field != field {
			t.Errorf("%q: %+v", bad, e)
		}
	}

	for _, good := range []string{`{"summary":"Price unchanged at 100 EUR."}`, `{"summary":"価格は100ユーロのままです。"}`, `{"summary":"价格未变，仍为100欧元。"}`,
		`{"summary":"Цена не изменилась."}`, `{"summary":"None.","outcome":"nothing"}`, `{"summary":"無","outcome":"nothing"}`} {
		if e := call(t, r, "complete", good); !e.OK {
			t.Errorf("%s: %+v", good, e)
		}
	}
	if e := call(t, r, "complete", `{"summary":"...","outcome":"nothing"}`); e.Field != "summary" {
		t.Errorf("no word: %+v", e)
	}
	if e := call(t, r, "complete", `{"summary":"Sorted."}`); !strings.Contains(e.Message, "has 6 letters and digits and needs 16, so 10 are missing") || !strings.Contains(e.Expected, "16 letters") {
		t.Errorf("the rule is not told: %+v", e)
	}
	good := `{"summary":"Imported three expenses; food is the largest category."}`
	if e := call(t, r, "complete", good); !e.OK || !strings.Contains(string(e.Result), `"outcome":"success"`) {
		t.Errorf("%+v", e)
	}

	call(t, r, "todo", `{"markdown":"- [ ] open"}`)
	if e := call(t, r, "complete", good); !e.OK || len(e.Warnings) != 1 {
		t.Errorf("with an open item: %+v", e)
	}
	if e := call(t, r, "complete", `{"summary":"Imported three expenses; food is the largest.","outcome":"great"}`); e.Field != "outcome" {
		t.Errorf("unknown outcome: %+v", e)
	}
}

// TestNotify checks that a notice is in the outbox once, even if its call is repeated. Every run
// has the tool, with or without self-scheduling (C-13).
func TestNotify(t *testing.T) {
	r, l := setup(t)
	for range 2 {
		if e := call(t, r, "notify", `{"title":"3 expenses","body":"Top: food"}`); !e.OK {
			t.Fatalf("%+v", e)
		}
	}

	out, err := l.Outbox.Pending(t.Context(), time.Now(), 10)
	if err != nil || len(out) != 1 || out[0].Title != "3 expenses" || out[0].Channel != "desktop" || out[0].Run != 7 {
		t.Errorf("outbox: %+v (%v)", out, err)
	}
	if e := call(t, r, "notify", `{"title":" \n "}`); e.Kind != tool.KindInvalidArgs || e.Field != "title" {
		t.Errorf("no title: %+v", e)
	}
	if e := call(t, r, "notify", `{"title":"x","channel":"pager"}`); e.Field != "channel" || !strings.Contains(e.Expected, "desktop, ops") {
		t.Errorf("unknown channel: %+v", e)
	}
}

// TestNotifyKeys checks that two calls create two notices, and so do the same calls of two runs. A
// title is one line.
func TestNotifyKeys(t *testing.T) {
	r, l := setup(t)
	for _, in := range []tool.Invocation{{Run: 7, Key: "p1"}, {Run: 7, Key: "p2"}, {Run: 8, Key: "p1"}, {Run: 7, Key: "p2"}} {
		if e, err := r.Call(t.Context(), in, "notify", json.RawMessage(`{"title":"two\n lines","channel":"ops"}`)); err != nil || !e.OK {
			t.Fatalf("%+v (%v)", e, err)
		}
	}

	out, err := l.Outbox.Pending(t.Context(), time.Now(), 10)
	if err != nil || len(out) != 3 || out[0].Title != "two lines" || out[0].Channel != "ops" {
		t.Errorf("outbox: %+v (%v)", out, err)
	}
}

// TestNotifyIsSigned checks that a notice names its agent once and links to an existing view
// (OSA-80).
func TestNotifyIsSigned(t *testing.T) {
	_, l := setup(t)
	tools, err := control.Tools(control.Options{Ledger: l, Channels: []string{"desktop"}, Default: []string{"desktop"}, Views: func(context.Context) ([]string, error) { return []string{"by_month"}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	r, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}

	q := contract.Of(t, "OSA-80").Quote
	for title, want := range map[string]string{"31 rows": q("ann: 31 rows"), "Ann: 31 rows": "Ann: 31 rows", "ann": "ann", "annual report": "ann: annual report", "ann-marie called": "ann: ann-marie called", "annä": "ann: annä"} {
		args, err := json.Marshal(map[string]string{q("title"): title, q("body"): "below", q("view_ref"): "by_month"})
		if err != nil {
			t.Fatal(err)
		}
		e, err := r.Call(t.Context(), tool.Invocation{Run: 7, Key: title, Agent: "ann"}, q("notify"), args)
		if err != nil || !e.OK || !strings.Contains(string(e.Result), fmt.Sprintf(`%q:[{"channel":"desktop","can_deliver":"unknown"}]`, q("posted"))) {
			t.Fatalf("%s: %+v (%v)", title, e, err)
		}

		n, found, err := l.Outbox.Last(t.Context(), "desktop")
		if err != nil || !found || n.Title != want || n.ViewRef != "by_month" || n.Agent != "ann" {
			t.Errorf("%s: %+v (%v)", title, n, err)
		}
	}

	e, err := r.Call(t.Context(), tool.Invocation{Run: 7, Key: "x", Agent: "ann"}, "notify", json.RawMessage(`{"title":"x","view_ref":"by_moth"}`))
	if err != nil || e.Kind != tool.KindInvalidArgs || !strings.Contains(e.Message, `did you mean "by_month"`) {
		t.Errorf("a view that is not there: %+v (%v)", e, err)
	}
}

// TestNotifyWithoutChannel checks that a run does not fail if no channel is configured.
func TestNotifyWithoutChannel(t *testing.T) {
	_, l := setup(t)
	tools, err := control.Tools(control.Options{Ledger: l})
	if err != nil {
		t.Fatal(err)
	}

	r, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}
	if e := call(t, r, "notify", `{"title":"x"}`); !e.OK || len(e.Warnings) != 1 || !strings.Contains(string(e.Result), `"posted":[]`) {
		t.Errorf("%+v %s", e, e.Result)
	}
	if out, err := l.Outbox.Pending(t.Context(), time.Now(), 10); err != nil || len(out) > 0 {
		t.Errorf("outbox: %+v (%v)", out, err)
	}
}

// TestNotifyGoesToEachDefaultChannel checks that a notice goes to each default channel once, even
// if its call is repeated. The result lists each channel and whether it can deliver.
func TestNotifyGoesToEachDefaultChannel(t *testing.T) {
	_, l := setup(t)
	tools, err := control.Tools(control.Options{Ledger: l, Channels: []string{"desktop", "phone", "mail"}, Default: []string{"phone", "mail"},
		CanDeliver: func(_ context.Context, channel string) (string, string) {
			if channel == "phone" {
				return "no", "it is off"
			}
			return "yes", ""
		}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := tool.NewRegistry(tools...)
	if err != nil {
		t.Fatal(err)
	}

	for range 2 {
		e, err := r.Call(t.Context(), tool.Invocation{Run: 7, Key: "p1"}, "notify", json.RawMessage(`{"title":"x"}`))
		if want := `"posted":[{"channel":"phone","can_deliver":"no","why":"it is off"},{"channel":"mail","can_deliver":"yes"}]`; err != nil || !strings.Contains(string(e.Result), want) {
			t.Fatalf("%s (%v), want %s", e.Result, err, want)
		}
	}
	if out, err := l.Outbox.Pending(t.Context(), time.Now(), 10); err != nil || len(out) != 2 || out[0].Channel != "phone" || out[1].Channel != "mail" {
		t.Errorf("outbox: %+v (%v)", out, err)
	}
}
