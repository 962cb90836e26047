package mcpserver_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"rouse/cmd/internal/mcpserver"
)

// TestLinesThatAreNoMessages checks that a line that is not a message gets an error response, and
// that the next line is read.
func TestLinesThatAreNoMessages(t *testing.T) {
	t.Parallel()
	in, write := io.Pipe()
	read, out := io.Pipe()
	over := make(chan error, 1)
	go func() {
		over <- mcpserver.New(mcpserver.Options{Version: "1", Done: t.Context()}).ServeStream(t.Context(), in, out)
		out.Close()
	}()

	const ping = `{"jsonrpc":"2.0","id":%d,"method":"ping"}`
	answers := bufio.NewScanner(read)
	answers.Buffer(nil, 1<<20)
	for i, c := range []struct {
		line string
		code int // 0 for a result
	}{
		{"hello", -32700},
		{`{"jsonrpc":"2.0","id":1,`, -32700},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, 0},
		{`"hello"`, -32600},
		{`{}`, -32600},
		{`[]`, -32600},
		{`[1]`, -32600},
		{fmt.Sprintf(ping, 2) + " \t\r", 0},
		{`[` + fmt.Sprintf(ping, 3) + `]`, 0},
		{strings.Repeat("x", 17<<20), -32600},
		{"\n\n" + fmt.Sprintf(ping, 4), 0},
		{"\x00\xff", -32700},
		{fmt.Sprintf(ping, 5), 0},
	} {
		go func() { _, _ = io.WriteString(write, c.line+"\n") }()
		if !answers.Scan() {
			t.Fatalf("%d: the server ended: %v", i, answers.Err())
		}
		var got struct {
			ID    any
			Error struct {
				Code    int
				Message string
			}
		}
		if err := json.Unmarshal(answers.Bytes(), &got); err != nil || got.Error.Code != c.code || (c.code != 0) != (got.ID == nil) {
			t.Errorf("%d, %.60s: %s (%v)", i, c.line, answers.Text(), err)
		}
	}

	write.Close()
	if err := <-over; err != nil {
		t.Errorf("the end of the stream: %v", err)
	}
}
