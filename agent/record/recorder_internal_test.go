package record

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/loop"
	"rouse/agent/model"
	"rouse/agent/model/replay"
	"rouse/agent/redact"
	"rouse/internal/ledger"
)

// BenchmarkRecord measures the recording of one exchange, late in a run of 100 steps with tool
// results of 2 KB each.
func BenchmarkRecord(b *testing.B) {
	var history []model.Message
	for i := range 100 {
		id := fmt.Sprint(i)
		history = append(history, model.Message{Role: model.RoleAssistant, Text: "I go on.", Calls: []model.Call{{ID: id, Name: "file_read", Args: json.RawMessage(`{"path":"a.txt"}`)}}},
			model.Message{Role: model.RoleTool, CallID: id, Name: "file_read", Text: strings.Repeat("0123456789abcdef", 128)})
	}

	p := &Recorder{Recorder: nil, path: filepath.Join(b.TempDir(), "1.1.jsonl"), attempt: ledger.Attempt{Run: 1, Number: 1}, redact: redact.New([]string{"sk-canary-0123456789", "another secret"}), log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	defer p.close()

	n := 0
	for b.Loop() {
		n = n%90 + 1
		x := replay.Exchange{Model: "m", Answer: replay.Answer{Text: "I go on."}, Request: p.cleanRequest(model.Request{System: "Work.", Messages: history[:20+2*n]})}
		p.add(x)
		p.flush()
	}

	if p.broken {
		b.Fatal("it broke")
	}
}

// TestRecordingIsRedacted checks that secrets are found in a text that is JSON, in arguments, and
// in data that a provider wants back. The redacted data must still be JSON.
func TestRecordingIsRedacted(t *testing.T) {
	t.Parallel()
	const secret = `k"e\y<&>-canary`
	hide := redact.New([]string{secret})
	quoted, err := json.Marshal(map[string]string{"v": secret})
	if err != nil {
		t.Fatal(err)
	}

	twice, err := json.Marshal(map[string]string{"content": string(quoted)})
	if err != nil {
		t.Fatal(err)
	}

	r := cleanRequest(model.Request{System: "Use " + secret, Messages: []model.Message{
		{Role: model.RoleUser, Text: secret},
		{Role: model.RoleAssistant, Raw: quoted, Calls: []model.Call{{Name: "a", Args: quoted}}},
		{Role: model.RoleTool, Text: string(quoted)},
	}}, hide)

	a := replay.Answer{Text: "It is " + secret, Raw: quoted, Calls: []model.Call{{Name: "a", Args: quoted}, {Name: "write", Args: twice}, {Name: "b", Args: json.RawMessage("no json")}}}
	(&Recorder{redact: hide}).cleanAnswer(&a)
	var e replay.Encoder
	line, err := e.Exchange(replay.Exchange{Request: &r, Answer: a, Fault: (&Recorder{redact: hide}).fault(fmt.Errorf("no answer for %s", secret))})
	if err != nil || strings.Contains(string(line), "canary") || strings.Count(string(line), "[secret]") != 10 {
		t.Errorf("%v: %s", err, line)
	}
}

// TestSecretsInJSON checks that redacted JSON is still JSON, for any number of encodings and any
// encoder.
func TestSecretsInJSON(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{`canary"`, `canary\`, `"canary&"`, `canary\"<é>`, "canary\nsecret\t"} {
		hide := redact.New([]string{secret})
		text := secret
		for depth := range 3 {
			if got := hide.Replace(text); got != "[secret]"+strings.Repeat("\n", strings.Count(text, "\n")) { // the number of lines is unchanged
				t.Errorf("%q, %d times quoted, leaves %s of %s", secret, depth, got, text)
			}

			var out strings.Builder
			e := json.NewEncoder(&out)
			e.SetEscapeHTML(depth == 0)
			if err := e.Encode(text); err != nil {
				t.Fatal(err)
			}

			text = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(out.String()), `"`), `"`)
		}
	}
}

// TestRecordingThatCannotBeWritten checks that a run continues if its recording cannot be written,
// and that the log reports it once.
func TestRecordingThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	file := filepath.Join(t.TempDir(), "file")
	p := &Recorder{Recorder: silent{}, path: filepath.Join(file, "1.1.jsonl"), redact: redact.New(nil), log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := writeFile(file); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		p.add(replay.Exchange{Answer: replay.Answer{Text: "a"}})
		if err := p.FinishStep(t.Context(), loop.Step{}); err != nil {
			t.Fatal(err)
		}
	}

	p.close()
	if strings.Count(log.String(), "the run goes on without its recording") != 1 {
		t.Errorf("the log: %s", log.String())
	}
}

type silent struct{ loop.Recorder }

func (silent) FinishStep(context.Context, loop.Step) error { return nil }

func writeFile(path string) error { return os.WriteFile(path, nil, 0o600) }
