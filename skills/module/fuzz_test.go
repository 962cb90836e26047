package module

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"testing"
)

// FuzzReply checks that readFrame accepts any data of a child and respects the size limit.
func FuzzReply(f *testing.F) {
	for _, r := range []reply{
		{Ready: true}, {Broken: "it"}, {Event: &Event{Calls: []Call{{ID: 1, Method: "storage.get", Args: []byte(`["k"]`)}}, Logs: []Log{{Source: "console", Level: "info", Text: "x"}}}},
		{Event: &Event{End: &End{Status: Returned, Value: []byte(`{"a":1}`)}}}, {Event: &Event{End: &End{Status: "forged"}}},
	} {
		var b bytes.Buffer
		if err := writeFrame(&b, r, maxReply); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
		f.Add(b.Bytes()[:b.Len()-1])
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{', '}'})
	f.Add([]byte{0, 0, 0, 0})

	const most = 1 << 12
	f.Fuzz(func(t *testing.T, sent []byte) {
		in := bytes.NewReader(sent)
		var r reply
		err := readFrame(in, most, &r)
		if len(sent) < 4 {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%d bytes: %v", len(sent), err)
			}
			return
		}

		size := int(binary.BigEndian.Uint32(sent))
		read := len(sent) - in.Len()
		switch {
		case size > most:
			if !errors.Is(err, errTooLarge) || read != 4 {
				t.Fatalf("%d bytes were claimed, %d read: %v", size, read, err)
			}
		case size > len(sent)-4:
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%d of %d bytes: %v", len(sent)-4, size, err)
			}
		case read != 4+size:
			t.Fatalf("of %d bytes %d were read: %v", 4+size, read, err)
		}
		if err != nil || r.Event == nil || r.Event.check([]string{"storage.get"}, 0) != nil {
			return
		}

		// An accepted reply can be encoded again.
		var b bytes.Buffer
		var again reply
		if err := errors.Join(writeFrame(&b, r, 1<<20), readFrame(&b, 1<<20, &again)); err != nil || !reflect.DeepEqual(r.Event.End == nil, again.Event.End == nil) {
			t.Fatalf("%+v became %+v (%v)", r, again, err)
		}
	})
}
