package agent_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/event"
)

// TestPictureOfATool checks that an image that a tool has read is shown to the model, recorded, and
// shown again to the attempt that continues after a crash. No text for the model or the owner
// contains it.
func TestPictureOfATool(t *testing.T) {
	t.Parallel()
	png := model.Image{Type: "image/png", Data: slices.Concat([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte{1, 2, 3}, 50_000), []byte("IEND"))}
	text := base64.StdEncoding.EncodeToString(png.Data)
	b := setup(t,
		modeltest.Turn{Calls: []model.Call{{ID: "1", Name: "file_read", Args: json.RawMessage(`{"path":"scan.png"}`)}}},
		modeltest.Turn{Fail: model.KindAuth},
		modeltest.Turn{WantImages: []model.Image{png}, Text: "It is a receipt."})
	work := b.plan.Agents["clerk"].Workdir
	if err := os.MkdirAll(work, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "scan.png"), png.Data, 0o644); err != nil {
		t.Fatal(err)
	}

	id := b.enqueue(ledger.Request{Agent: "clerk", Detail: ledger.TriggerDetail{Prompt: "What is it?"}})
	if res := b.run(id); res.Outcome != domain.OutcomeError {
		t.Fatalf("%+v", res)
	}
	if err := b.ledger.Interrupt(t.Context(), ledger.Attempt{Run: id, Number: 1}, "killed", nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(work, "scan.png")); err != nil {
		t.Fatal(err)
	}

	if res := b.run(id); res.Outcome != domain.OutcomeSuccess || res.Summary != "It is a receipt." {
		t.Fatalf("%+v", res)
	}

	calls, err := b.ledger.Steps.Calls(t.Context(), id)
	if err != nil || len(calls) != 1 || len(calls[0].Envelope) < len(png.Data) {
		t.Fatalf("%d calls (%v)", len(calls), err)
	}

	events, err := b.ledger.Events.List(t.Context(), event.Filter{Run: id})
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range events {
		if len(e.Data) > 10_000 || strings.Contains(string(e.Data), text) {
			t.Errorf("the event %s holds the picture: %d bytes", e.Kind, len(e.Data))
		}
	}

	for i, r := range b.server.Requests()[1:] {
		if n := strings.Count(string(r), text); n != 1 || strings.Contains(string(r), `\"images\"`) {
			t.Errorf("request %d does not show the picture, or in its text", i+1)
		}
	}
}
