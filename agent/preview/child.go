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

// childName is the one argument of a process that reads a file.
const childName = "preview-child"

const (
	maxStack = 64 << 20 // bytes, of a goroutine
	exitEdge = 3        // the exit code of a process that takes too much
)

const (
	kindPDF  = "pdf"
	kindXLSX = "xlsx"
	kindBMP  = "bmp"
)

// request is the first line that a child is given; the file follows.
type request struct {
	Kind          string
	From, Chars   int
	Sheet         string
	Rows, Columns int
}

func (r request) with(content io.Reader) io.Reader {
	line, _ := json.Marshal(r) //nolint:errchkjson // of strings and numbers
	return io.MultiReader(bytes.NewReader(append(line, '\n')), content)
}

// answer is all that a child says.
type answer struct {
	Result json.RawMessage `json:",omitempty"`
	Fault  string          `json:",omitempty"`
}

// Child must be the first that main does. Where this process is one that reads a file it does so
// and ends; else Child returns at once.
func Child() {
	if len(os.Args) != 2 || os.Args[1] != childName {
		return
	}

	out := os.Stdout
	os.Stdout = os.Stderr // what a reader prints is no answer
	debug.SetMaxStack(maxStack)
	debug.SetMemoryLimit(maxMemory / 2) // garbage is collected long before it counts as too much
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
		os.Exit(1) // who waits for an answer says so
	}

	os.Exit(0)
}

// watch ends the process when it takes too much: also when there is nobody left to kill it.
func watch() {
	end := time.After(maxTime + time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	// What was given back to the system is not used any more.
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
