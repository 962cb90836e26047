package loop_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
)

// TestImagesTakeRoom checks that images count in the context separately from the text, and that
// images of old turns are omitted for new ones.
func TestImagesTakeRoom(t *testing.T) {
	var turns []func(model.Request) []any
	for i := range 12 {
		turns = append(turns, say(call("look", fmt.Sprintf(`{"n":%d}`, i))))
	}

	b := setup(t, append(turns, say("seen"))...)
	type args struct {
		N int `json:"n"`
	}
	drawn := []byte("a picture!!!!!!!")
	encoded := base64.StdEncoding.EncodeToString(drawn[2:14]) // as encoded after the byte that counts
	look, err := tool.Define(tool.Spec{Name: "look", Description: "looks", Effect: domain.EffectRead, Class: tool.ClassOther}, func(_ context.Context, _ tool.Invocation, a args) (tool.Envelope, error) {
		e := tool.Success("a picture")
		e.Images = []model.Image{{Type: "image/png", Data: append([]byte{byte(a.N)}, drawn...)}}
		return e, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if b.o.Registry, err = tool.NewRegistry(look); err != nil {
		t.Fatal(err)
	}

	b.o.Window = 16_000
	if res := b.run(t, t.Context()); res.Outcome != "success" {
		t.Fatalf("%+v", res)
	}

	if e := string(b.log.calls[0].Envelope); !strings.Contains(e, encoded) {
		t.Errorf("the record keeps no picture: %s", e)
	}
	for i, r := range b.model.requests {
		n, last := 0, -1
		for _, m := range r.Messages {
			if strings.Contains(m.Text, encoded) {
				t.Errorf("request %d has a picture in its text: %s", i, m.Text)
			}
			for _, image := range m.Images {
				n, last = n+1, int(image.Data[0])
			}
		}
		if n > 16_000/1600 || last != i-1 || i > 0 && n == 0 {
			t.Errorf("request %d shows %d pictures, the last of them %d", i, n, last)
		}
	}

	if e := b.log.steps; len(e) != 13 {
		t.Errorf("%d steps", len(e))
	}
}
