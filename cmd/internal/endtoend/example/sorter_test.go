package example

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// TestSorterTemplate runs the template sorter, including its commented-out parts.
func TestSorterTemplate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "inbox", "note.txt")
	move, err := json.Marshal(map[string]string{"from": path, "to": "invoices/"})
	if err != nil {
		t.Fatal(err)
	}
	s := modeltest.New(t, turn("file_move", string(move)), turn("complete", `{"summary":"Moved note.txt to the folder invoices."}`))

	if err := endtoend.Rouse(t, "init", "--template", "sorter", dir).Run(); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "rouse.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	whole := regexp.MustCompile(`(?m)^  # (- |  )`).ReplaceAllString(string(text), "  $1")
	whole += `models: [{name: m, provider: openai, model: m, base_url: "` + s.URL + `/v1", api_key: none}]` + "\n"
	if err := os.WriteFile(config, []byte(whole), 0o644); err != nil {
		t.Fatal(err)
	}

	p := endtoend.Serve(t, config)
	defer p.Stop(t)
	sorted := map[string]string{"sea.JPG": "pictures", "letter.pdf": "papers", "note.txt": "invoices"}
	for name := range sorted {
		if err := os.WriteFile(filepath.Join(dir, "inbox", name), []byte("Invoice 17: 100 EUR"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, folder := range sorted {
		cmdtest.Until(t, name+" in "+folder, func() bool {
			_, err := os.Stat(filepath.Join(dir, "sorted", folder, name))
			return err == nil
		})
	}
	cmdtest.Until(t, "the success of the model's run", func() bool {
		var runs []struct{ Job, Outcome string }
		endtoend.RunJSON(t, &runs, "runs", "--json", "--job", "others", "--config", config)
		return len(runs) == 1 && runs[0].Outcome == "success"
	})
	if request := string(s.Requests()[0]); strings.Contains(request, `"shell_run"`) || !strings.Contains(request, `"file_move"`) {
		t.Errorf("the tools of the model: %s", request)
	}
}
