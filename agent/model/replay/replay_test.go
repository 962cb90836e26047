package replay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/replay"
)

// TestConformance checks that a recording of a script gives the answers of the script. Faults of
// the transport and of the server do not apply to recordings.
func TestConformance(t *testing.T) {
	modeltest.Run(t, func(t *testing.T, script modeltest.Script, _ modeltest.Limits) model.Provider {
		var r replay.Recording
		for _, turn := range script {
			if turn.Hang || turn.RepeatEvery > 0 || turn.Damage != nil || turn.Status != 0 || turn.Raw != "" || turn.Fail != "" || turn.Finish != "" {
				t.Skip("a recording is no server")
			}

			x := replay.Exchange{Answer: replay.Answer{Text: turn.Text, Calls: turn.Calls}}
			if turn.Usage != (model.Usage{}) {
				x.Usage = &turn.Usage
			}

			if turn.Opaque != "" {
				x.Raw = json.RawMessage(fmt.Sprintf("%q", turn.Opaque))
			}

			for _, c := range turn.Calls {
				if c.Name == "" || !json.Valid(c.Args) || c.Args[0] != '{' {
					t.Skip("a recording holds no broken call")
				}
			}

			r.Exchanges = append(r.Exchanges, x)
		}

		var file bytes.Buffer
		if err := replay.Write(&file, r); err != nil {
			t.Fatal(err)
		}

		p, err := replay.Parse("script.jsonl", file.Bytes())
		if err != nil {
			t.Skip("a recording that answers nothing is refused")
		}

		return p
	})
}

func user(text string) model.Message { return model.Message{Role: model.RoleUser, Text: text} }

func conversation() replay.Recording {
	call := model.Call{ID: "1", Name: "file_read", Args: json.RawMessage(`{"path":"a.txt"}`)}
	said := model.Message{Role: model.RoleAssistant, Text: "I look.", Calls: []model.Call{{ID: "1", Key: "m1.1.1", Name: "file_read", Args: call.Args}}}
	result := model.Message{Role: model.RoleTool, CallID: "1", Name: "file_read", Text: `{"ok":true}`}
	tools := []model.Tool{{Name: "file_read", Description: "reads", Schema: json.RawMessage(`{"type":"object"}`)}}
	warm := 0.5
	first := &model.Request{System: "Be brief.", Tools: tools, Messages: []model.Message{user("Read a.txt.")}, MaxOutput: 100, Temperature: &warm}
	second := &model.Request{System: "Be brief.", Tools: tools, Messages: []model.Message{user("Read a.txt."), said, result}}

	return replay.Recording{
		Run:      &replay.Run{ID: "7", Job: "j", Agent: "a", Trigger: "manual", Outcome: "success"},
		Attempts: []replay.Attempt{{Number: 1, State: "done", Snapshot: json.RawMessage(`{"tables":"none"}`), Questions: []replay.Question{{State: "answered", Answer: "yes"}}}},
		Exchanges: []replay.Exchange{
			{Attempt: 1, Step: 1, Model: "m", Request: first, Fault: &replay.Fault{Kind: "unavailable", Message: "busy", Retryable: true}, TookMS: 7},
			{Attempt: 1, Step: 1, Try: 1, Model: "m", Request: first, Answer: replay.Answer{Text: "I look.", Calls: []model.Call{call}, Raw: json.RawMessage(`{"s":1}`), Usage: &model.Usage{Input: 10, Output: 2}, Stop: "tool_calls"}},
			{Attempt: 1, Step: 2, Model: "m", Request: second, Answer: replay.Answer{Text: "It says nothing."}},
		},
		Steps: []replay.Step{{Attempt: 1, Number: 1, Text: "I look.", Notices: []string{"n"}}},
		Calls: []replay.Call{{Attempt: 1, Step: 1, Key: "m1.1.1", Tool: "file_read", Args: call.Args, State: "done", Envelope: json.RawMessage(`{"ok":true}`)}},
	}
}

// TestFormat checks that a written recording can be read, and that a request takes only the space
// of its new part.
func TestFormat(t *testing.T) {
	want := conversation()
	var file bytes.Buffer
	if err := replay.Write(&file, want); err != nil {
		t.Fatal(err)
	}

	got, err := replay.Read(bytes.NewReader(file.Bytes()))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%+v\n%+v", err, got, want)
	}
	if n := strings.Count(file.String(), "Read a.txt."); n != 1 {
		t.Errorf("the prompt is there %d times", n)
	}

	for text, want := range map[string]string{
		"":                            `line 1: a recording begins with {"recording":{"version":1}}`,
		`{"exchange":{"text":"a"}}`:   "line 1: a recording begins with",
		`{"recording":{"version":2}}`: "line 1: is of version 2 of the format, and this rouse reads version 1",
		`{"recording":{"version":1}}` + "\n{\"exchange\":{\"txt\":\"a\"}}":                    `line 2: cannot be read: json: unknown field "txt"`,
		`{"recording":{"version":1}}` + "\n\n{}":                                              "line 3: holds 0 of recording,",
		`{"recording":{"version":1}}` + "\n{\"exchange\":{\"text\":\"a\"":                     "line 2: cannot be read: unexpected EOF",
		`{"recording":{"version":1}}` + "\n{\"exchange\":{\"calls\":[{\"args\":{}}]}}":        "line 2: call 1 of the answer has no name",
		`{"recording":{"version":1}}` + "\n{\"exchange\":{\"request\":{\"same\":2}}}":         "line 2: the request begins with 2 messages of the one before it",
		`{"recording":{"version":1}}` + "\n{\"recording\":{\"version\":1}}":                   "line 2: a recording begins with",
		`{"recording":{"version":1}}` + "\n{\"exchange\":{}} {\"exchange\":{}}":               "line 2: holds more than one JSON value",
		`{"recording":{"version":1}}` + "\n{\"attempt\":{\"number\":1,\"state\":\"done\"}}\n": "",
	} {
		if _, err := replay.Read(strings.NewReader(text)); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}

	if cut, err := replay.ReadLines(strings.NewReader("{\"exchange\":{\"text\":\"a\"}}\n{\"exchange\":{\"te")); err != nil || len(cut.Exchanges) != 1 {
		t.Errorf("a line that was cut off: %+v %v", cut, err)
	}
}

// TestFormatKeepsImages writes two requests that differ in an image alone.
func TestFormatKeepsImages(t *testing.T) {
	request := func(data string) *model.Request {
		return &model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: "look", Images: []model.Image{{Type: "image/png", Data: []byte(data)}}}}}
	}
	want := replay.Recording{Exchanges: []replay.Exchange{{Request: request("one")}, {Request: request("two")}}}
	var file bytes.Buffer
	if err := replay.Write(&file, want); err != nil {
		t.Fatal(err)
	}
	got, err := replay.Read(bytes.NewReader(file.Bytes()))
	if err != nil || len(got.Exchanges) != 2 || !reflect.DeepEqual(got.Exchanges[1].Request.Messages, want.Exchanges[1].Request.Messages) {
		t.Errorf("%+v %v", got, err)
	}
}

// TestProvider checks that the transcript selects the next answer, for concurrent runs and after a
// restart. A different request is rejected with the difference.
func TestProvider(t *testing.T) {
	rec := conversation()
	p, err := replay.New("a.jsonl", rec)
	if err != nil {
		t.Fatal(err)
	}

	first, second := *rec.Exchanges[1].Request, *rec.Exchanges[2].Request
	for range 2 { // each run starts at the beginning
		if a := modeltest.Ask(t, t.Context(), p, first); a.Err != nil || a.Text != "I look." || len(a.Calls) != 1 || a.Usage.Input != 10 || string(a.Raw) != `{"s":1}` {
			t.Errorf("%+v", a)
		}
	}

	if a := modeltest.Ask(t, t.Context(), p, second); a.Err != nil || a.Text != "It says nothing." {
		t.Errorf("%+v", a)
	}

	with := func(r model.Request, change func(*model.Request)) model.Request {
		r.Messages = append([]model.Message(nil), r.Messages...)
		change(&r)
		return r
	}

	third := with(second, func(r *model.Request) {
		r.Messages = append(r.Messages, model.Message{Role: model.RoleAssistant, Text: "It says nothing."}, user("And b.txt?"))
	})
	for want, r := range map[string]model.Request{
		`answer 1 of the recording a.jsonl is to another request: message 1, what the model is told: recorded was "Read a.txt.", now it is "Read b.txt."`: with(first, func(r *model.Request) { r.Messages[0].Text = "Read b.txt." }),
		`answer 2 of the recording a.jsonl is to another request: message 3, the result of file_read: recorded was`:                                       with(second, func(r *model.Request) { r.Messages[2].Text = `{"ok":false}` }),
		`the system prompt: recorded was "Be brief.", now it is "Be long." (and 1 more difference`:                                                        with(first, func(r *model.Request) { r.System, r.NoTools = "Be long.", true }),
		`the tool file_read: recorded was "offered", now it is nothing`:                                                                                   with(first, func(r *model.Request) { r.Tools = nil }),
		`has 2 answers, and the run asks for one more; its last message is what the model is told: "And b.txt?"`:                                          third,
	} {
		a := modeltest.Ask(t, t.Context(), p, r)
		var e *model.Error
		if !errors.As(a.Err, &e) || e.Retryable || e.Kind != model.KindBadRequest || !strings.Contains(e.Message, want) {
			t.Errorf("%v, want %s", a.Err, want)
		}
	}

	loose, err := replay.New("a.jsonl", rec.AnswersOnly())
	if err != nil {
		t.Fatal(err)
	}

	other := with(second, func(r *model.Request) { r.System, r.Messages[2].Text = "Else.", "{}" })
	if a := modeltest.Ask(t, t.Context(), loose, other); a.Err != nil || a.Text != "It says nothing." {
		t.Errorf("answers alone: %+v", a)
	}
	if _, err := replay.New("a.jsonl", replay.Recording{}); err == nil {
		t.Error("a recording without an answer is a provider")
	}
	if _, err := replay.Open(filepath.Join(t.TempDir(), "none.jsonl")); err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// FuzzRead checks that files do not break the reader, and that accepted files survive a round trip.
func FuzzRead(f *testing.F) {
	var file bytes.Buffer
	if err := replay.Write(&file, conversation()); err != nil {
		f.Fatal(err)
	}

	f.Add(file.Bytes())
	f.Add([]byte("{\"recording\":{\"version\":1}}\n{\"exchange\":{\"calls\":[{\"name\":\"a\"}]}}\n{\"exchange\":{\"text\":\"b\",\"request\":{\"messages\":[{\"role\":\"user\"}]}}}"))
	f.Add([]byte("{\"recording\":{\"version\":1}}\n{\"exchange\":{\"error\":{\"message\":\"x\"}}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := replay.Read(bytes.NewReader(text))
		if err != nil {
			return
		}

		var once, twice bytes.Buffer
		if err := replay.Write(&once, r); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}

		again, err := replay.Read(bytes.NewReader(once.Bytes()))
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, once.Bytes())
		}
		if err := replay.Write(&twice, again); err != nil || !bytes.Equal(once.Bytes(), twice.Bytes()) {
			t.Fatalf("%v\n%s\n%s", err, once.Bytes(), twice.Bytes())
		}

		p, err := replay.New("fuzz", r)
		if err != nil {
			return
		}

		for _, x := range r.Exchanges {
			if x.Request != nil {
				modeltest.Ask(t, t.Context(), p, *x.Request)
			}
		}
	})
}

// TestContains checks that an answer to requests with certain texts is given to each of them. Such
// answers come before those that are given in order.
func TestContains(t *testing.T) {
	file := `{"recording":{"version":1}}
{"exchange":{"contains":["outline","wind"],"text":"Of wind."}}
{"exchange":{"contains":"outline","text":"Of anything.","calls":[{"id":"a","name":"todo"}]}}
{"exchange":{"contains":"storm","error":{"kind":"unavailable","message":"away"}}}
{"exchange":{"text":"In its turn."}}
`
	p, err := replay.Parse("a.jsonl", []byte(file))
	if err != nil {
		t.Fatal(err)
	}

	for ask, want := range map[[2]string]string{
		{"Write an outline.", "About wind."}: "Of wind.",
		{"About wind.", "Write an outline."}: "Of wind.",
		{"Write an outline.", "About rain."}: "Of anything.",
		{"", "About rain."}:                  "In its turn.",
	} {
		for range 2 { // any number of times
			if a := modeltest.Ask(t, t.Context(), p, model.Request{System: ask[0], Messages: []model.Message{user(ask[1])}}); a.Err != nil || a.Text != want {
				t.Errorf("%q: %q (%v), want %q", ask, a.Text, a.Err, want)
			}
		}
	}
	if a := modeltest.Ask(t, t.Context(), p, model.Request{Messages: []model.Message{user("A storm.")}}); a.Err == nil || !strings.Contains(a.Err.Error(), "away") {
		t.Errorf("a failure: %+v", a)
	}

	// Texts in earlier messages are not considered, and calls of a run must have different ids.
	asked := []model.Message{user("Of wind, an outline.")}
	r := model.Request{System: "Write an outline.", Messages: append(asked, model.Message{Role: model.RoleAssistant, Text: "Of wind."}, user("And of rain."))}
	one := modeltest.Ask(t, t.Context(), p, r)
	r.Messages = append(r.Messages, model.Message{Role: model.RoleAssistant, Text: one.Text, Calls: one.Calls}, model.Message{Role: model.RoleTool, CallID: one.Calls[0].ID, Name: "todo"})
	two := modeltest.Ask(t, t.Context(), p, r)
	if one.Text != "Of anything." || two.Text != one.Text || one.Calls[0].ID == two.Calls[0].ID {
		t.Errorf("%+v\n%+v", one, two)
	}
}

// TestContainsAlone checks a recording that has only answers to requests with certain texts. Its
// error must mention them if no answer matches, and writing must keep them.
func TestContainsAlone(t *testing.T) {
	rec, err := replay.Read(strings.NewReader(`{"recording":{"version":1}}` + "\n" + `{"exchange":{"contains":"a","text":"b"}}` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := replay.New("a.jsonl", rec)
	if err != nil {
		t.Fatal(err)
	}
	if a := modeltest.Ask(t, t.Context(), p, model.Request{Messages: []model.Message{user("x")}}); a.Err == nil || !strings.Contains(a.Err.Error(), "no answer to this") {
		t.Errorf("%+v", a)
	}

	var file bytes.Buffer
	if err := replay.Write(&file, rec.AnswersOnly()); err != nil || !strings.Contains(file.String(), `"contains":["a"]`) {
		t.Errorf("%v %s", err, &file)
	}
	for text, want := range map[string]string{
		`{"exchange":{"contains":[],"text":"b"}}`:               "contains says nothing",
		`{"exchange":{"contains":["a",""],"text":"b"}}`:         "contains says nothing",
		`{"exchange":{"contains":3,"text":"b"}}`:                "it is a text, or a list of texts",
		`{"exchange":{"contains":"a","request":{},"text":"b"}}`: "leave out request, or contains",
	} {
		if _, err := replay.Read(strings.NewReader(`{"recording":{"version":1}}` + "\n" + text + "\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestCompareIgnoresTimes checks that requests match if they differ only in the times of a run.
func TestCompareIgnoresTimes(t *testing.T) {
	t.Parallel()
	request := func(system, result string) model.Request {
		return model.Request{System: system, Messages: []model.Message{{Role: model.RoleTool, Name: "x", Text: result}}}
	}
	old := request("You are a.\nIt is so.\n", `{"ok":true,"result":{}}`)
	now := request("You are a.\nThis run started on Monday 2026-11-30 08:00:00 CET (UTC+01:00), by its owner.\nWhen a minute or more has passed, a tool result holds the current time in its field now.\nIt is so.\n",
		`{"now":"2026-11-30T08:01:00+01:00","ok":true,"result":{}}`)
	if d := replay.Compare(old, now); len(d) != 0 {
		t.Errorf("%v", d)
	}
	if d := replay.Compare(old, request("You are b.\nIt is so.\n", `{"now":"soon","ok":true,"result":{}}`)); len(d) != 2 {
		t.Errorf("%v", d)
	}
}
