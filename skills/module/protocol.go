package module

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxMessage is the maximum size of an answer, a result, or all calls of one event, in bytes of
// JSON.
const MaxMessage = 16 << 20

// maxToChild is the maximum size of a message to a child, such as a program or answers.
const maxToChild = 1 << 30

// request is a request to a child. Exactly one field is set.
type request struct {
	Compile *sources      `json:",omitempty"`
	Start   *startRequest `json:",omitempty"`
	Next    *nextRequest  `json:",omitempty"`
}

// startRequest is a [Start] with the program's code.
type startRequest struct {
	Code string
	Start
}

type nextRequest struct{ Answers []answerMessage }

type answerMessage struct {
	ID      int
	Value   json.RawMessage            `json:",omitempty"`
	Error   *CallError                 `json:",omitempty"`
	NowMS   int64                      `json:",omitempty"`
	Getters map[string]json.RawMessage `json:",omitempty"`
}

// reply is a reply of a child. Exactly one field is set.
type reply struct {
	Ready    bool      `json:",omitempty"` // sent once at startup, without a request
	Compiled *compiled `json:",omitempty"`
	Event    *Event    `json:",omitempty"`
	Broken   string    `json:",omitempty"` // error of the child itself
}

// errTooLarge is returned if a message exceeds its maximum size.
var errTooLarge = errors.New("a message is too large")

// writeFrame writes a message as a 4-byte big-endian length followed by JSON.
func writeFrame(w io.Writer, message any, most int) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(text) > most {
		return fmt.Errorf("%w: it has %d bytes, and %d are the most", errTooLarge, len(text), most)
	}

	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text)))
	_, err = w.Write(append(frame, text...))
	return err
}

// readFrame reads a message. It allocates memory as bytes arrive, independent of the announced
// length. It returns [io.EOF] at the end of input between two messages.
func readFrame(r io.Reader, most int, into any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}

	size := binary.BigEndian.Uint32(head[:])
	if int64(size) > int64(most) {
		return fmt.Errorf("%w: it has %d bytes, and %d are the most", errTooLarge, size, most)
	}

	text, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err == nil && len(text) < int(size) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}

	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("what was sent is no message: %w", err)
	}
	return nil
}
