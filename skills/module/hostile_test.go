package module_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/skills/module"
)

// TestHostile runs modules that try to exceed their limits. The first line of each file contains
// the expected ends and a part of the message or value (OSL-10).
func TestHostile(t *testing.T) {
	files, err := filepath.Glob("testdata/hostile/*.ts")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d modules (%v)", len(files), err)
	}

	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".ts"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}

			first, _, _ := strings.Cut(strings.TrimPrefix(string(text), "// "), "\n")
			words, part, _ := strings.Cut(first, ":")
			memory := 32
			if strings.HasPrefix(first, "threw") && strings.Contains(file, "large_") {
				memory = 512 // large enough to reach the size limit
			}

			timeout := 3 * time.Minute // a busy system may need that long to reach the limit
			if strings.Contains(words, "timeout") {
				timeout = 250 * time.Millisecond // always used up
			}

			begin := time.Now()
			i := start(t, string(text), module.Start{Timeout: timeout, MemoryMB: memory, Surface: module.Surface{
				Methods: []string{"storage.get", "network.fetch", "log"}, Constants: map[string]rawMessage{"config": rawMessage(`{"deep":{"a":[1]}}`)}}})
			e := next(t, i)
			for e.End == nil {
				e = next(t, i) // never answered
			}

			end := *e.End
			if !slices.Contains(strings.Fields(words), string(end.Status)) || !strings.Contains(end.Error+string(end.Value), strings.TrimSpace(part)) {
				t.Errorf("it ended with %.300s %.300s, not with %s", end.String(), end.Value, first)
			}
			if took := time.Since(begin); took > timeout+20*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}
