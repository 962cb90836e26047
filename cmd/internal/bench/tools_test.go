package bench

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"
)

func TestBenchTools(t *testing.T) {
	rg, err := exec.LookPath("rg")
	if err != nil {
		rg = ""
	}

	grep, err := exec.LookPath("grep")
	if err != nil {
		grep = ""
	}

	for _, sizes := range []toolSizes{{}, {rg: rg, grep: grep}} {
		sizes.files, sizes.large, sizes.repeats = 200, 200_000, 2
		figures, err := measureTools(t.Context(), io.Discard, 1, sizes)
		if err != nil {
			t.Fatal(err)
		}

		var out bytes.Buffer
		if err := printFigures(&out, figures); err != nil {
			t.Fatal(err)
		}

		for _, text := range []string{"text in 200 files", "a page of a file of 0.2 MiB", "one edit of a file of 0.2 MiB, with undo"} {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%q is missing in\n%s", text, &out)
			}
		}

		if strings.Contains(out.String(), "ripgrep") != (sizes.rg != "") {
			t.Errorf("with ripgrep at %q:\n%s", sizes.rg, &out)
		}
	}
}
