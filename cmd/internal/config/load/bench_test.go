package load_test

import (
	"fmt"
	"strings"
	"testing"

	"rouse/cmd/internal/config/configtest"
)

// BenchmarkLoad reads ten thousand jobs of a thousand agents.
func BenchmarkLoad(b *testing.B) {
	var text strings.Builder
	text.WriteString("version: 1\nhome: ./home\ntimezone: Europe/Berlin\nagents:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "  - {name: a%d}\n", i)
	}

	text.WriteString("jobs:\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, "  - {name: j%d, agent: a%d, schedule: \"%d %d * * *\", playbook: [{call: db_schema}]}\n", i, i%1000, i%60, i/60%24)
	}

	path := configtest.Write(b, "rouse.yaml", text.String())
	for b.Loop() {
		if _, err := configtest.Load(path, nil); err != nil {
			b.Fatal(err)
		}
	}
}
