package preview

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"rouse/agentdb/tabular"
)

// childName is the only argument of a process that reads a file.
const childName = "preview-child"

const (
	maxStack = 64 << 20 // bytes per goroutine
	exitEdge = 3        // exit code of a process that exceeds its limits
)

const (
	kindPDF  = "pdf"
	kindXLSX = "xlsx"
	kindBMP  = "bmp"
)

// request is the first line of a child's input. The file follows it.
type request struct {
	Kind          string
	From, Chars   int
	Sheet         string
	Rows, Columns int
}

func (r request) with(content io.Reader) io.Reader {
	line, _ := json.Marshal(r) //nolint:errchkjson // strings and numbers only
	return io.MultiReader(bytes.NewReader(append(line, '\n')), content)
}

// answer is the output of a child.
type answer struct {
	Result json.RawMessage `json:",omitempty"`
	Fault  string          `json:",omitempty"`
}

// Child must be the first call in main. In a process that reads a file, it reads the file and
// exits. In other processes it returns at once.
func Child() {
	if len(os.Args) != 2 || os.Args[1] != childName {
		return
	}

	out := os.Stdout
	os.Stdout = os.Stderr // output of a parser is not part of the answer
	debug.SetMaxStack(maxStack)
	debug.SetMemoryLimit(maxMemory / 2) // collect garbage long before the limit
	go watch()
	err := limit()
	var text []byte
	if err == nil {
		text, err = json.Marshal(answerTo(os.Stdin))
	}

	if err == nil {
		_, err = out.Write(text)
	}
	if err != nil {
		os.Exit(1) // the parent reports the missing answer
	}

	os.Exit(0)
}

// watch ends the process if it exceeds its limits, even if its parent is gone.
func watch() {
	end := time.After(maxTime + time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	// Memory returned to the system no longer counts.
	used := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	for {
		select {
		case <-end:
			os.Exit(exitEdge)
		case <-tick.C:
			metrics.Read(used)
			if used[0].Value.Uint64()-used[1].Value.Uint64() > maxMemory {
				os.Exit(exitEdge)
			}
		}
	}
}

func answerTo(in io.Reader) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{Fault: fmt.Sprintf("is damaged: %v", p)}
		}
	}()

	// The file follows the line, so both are read through the same buffer.
	lines := bufio.NewReader(in)
	var r request
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err != nil {
		return answer{Fault: "was not named: " + err.Error()}
	}

	content, err := io.ReadAll(lines)
	if err != nil {
		return answer{Fault: "cannot be read: " + err.Error()}
	}

	var result any
	switch r.Kind {
	case kindPDF:
		result, err = readPDF(content, r.From, r.Chars)
	case kindXLSX:
		if result, err = tabular.PreviewXLSX(string(content), r.Sheet, r.Rows, r.Columns); err != nil {
			err = fault("cannot be shown: %v", err)
		}
	case kindBMP:
		result, err = pngOf(content)
	default:
		err = errors.New("is of no kind that is known")
	}

	if err == nil {
		a.Result, err = json.Marshal(result)
	}
	if err != nil {
		return answer{Fault: err.Error()}
	}

	return a
}
