package module

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxMessage is how much the calls of one event, one answer, or the result of a module may come to, in bytes of JSON.
const MaxMessage = 16 << 20

// maxToChild bounds what a child reads: a program, or some answers.
const maxToChild = 1 << 30

// request is what a child is asked: exactly one of these.
type request struct {
	Compile *sources      `json:",omitempty"`
	Start   *startRequest `json:",omitempty"`
	Next    *nextRequest  `json:",omitempty"`
}

// startRequest is [Start] with the program.
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

// reply is what a child answers: exactly one of these.
type reply struct {
	Ready    bool      `json:",omitempty"` // the first one, unasked
	Compiled *compiled `json:",omitempty"`
	Event    *Event    `json:",omitempty"`
	Broken   string    `json:",omitempty"` // what failed in the child itself
}

// errTooLarge says that a message is larger than its bound.
var errTooLarge = errors.New("a message is too large")

// writeFrame sends a message: its length in four bytes, the first the highest, and its JSON.
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

// readFrame reads a message. Memory is taken as its bytes arrive, whatever length is claimed. [io.EOF] is the end
// between two messages.
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
