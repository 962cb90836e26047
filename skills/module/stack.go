package module

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-sourcemap/sourcemap"
)

// maxStack bounds the calls that are shown.
const maxStack = 30

// frame is a call in a stack of QuickJS: "    at name (file:line:column)", of which the column may be missing.
var frame = regexp.MustCompile(`^\s*at (?:(.*) \()?([^():]+):(\d+)(?::(\d+))?\)?$`)

// stack is a stack of the machine by the lines of the sources. Calls of what is not the module's own are left out.
func (p *Program) stack(text string) string {
	if text == "" {
		return ""
	}

	lines, err := sourcemap.Parse("", []byte(p.Map))
	if err != nil {
		return "" // it was made by esbuild: there is nothing to show without it
	}

	var out []string
	for call := range strings.Lines(text) {
		m := frame.FindStringSubmatch(strings.TrimSpace(call))
		if m == nil || m[2] != moduleName || len(out) == maxStack {
			continue
		}

		line, _ := strconv.Atoi(m[3]) // digits
		column, _ := strconv.Atoi(m[4])
		file, _, at, col, ok := lines.Source(line, max(column-1, 0))
		if !ok {
			continue
		}

		name := m[1]
		if name == "" {
			name = "<anonymous>"
		}
		out = append(out, fmt.Sprintf("    at %s (%s:%d:%d)", name, strings.TrimPrefix(file, namespace+":"), at, col+1))
	}

	return strings.Join(out, "\n")
}
