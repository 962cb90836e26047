package permit

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"rouse/agent/loop"
	"rouse/agent/model/playbook"
	"rouse/agent/plan"
	"rouse/agent/tool/shell"
	"rouse/agent/tool/web"
)

// TestDefinitionIsWhole checks OSL-19: each setting that changes a run changes the approved text,
// except its position in the configuration. The test sets each field in turn, so that new fields
// are not forgotten.
func TestDefinitionIsWhole(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of   any
		text func(reflect.Value) definition
	}{
		"call": {playbook.Call{}, func(v reflect.Value) definition {
			return definition{Playbook: definedCalls([]playbook.Call{v.Interface().(playbook.Call)})}
		}},
		"gate": {plan.Condition{}, func(v reflect.Value) definition {
			return definition{When: definedGates([]plan.Condition{v.Interface().(plan.Condition)})}
		}},
		"bounds": {loop.Bounds{}, func(v reflect.Value) definition {
			return definition{Bounds: definedBoundsOf(v.Interface().(loop.Bounds))}
		}},
		"command": {shell.Grant{}, func(v reflect.Value) definition {
			return definition{Commands: definedCommands([]shell.Grant{v.Interface().(shell.Grant)})}
		}},
		"host": {web.Grant{}, func(v reflect.Value) definition {
			return definition{Network: []web.Grant{v.Interface().(web.Grant)}}
		}},
	} {
		for i := range reflect.TypeOf(c.of).NumField() {
			field := reflect.TypeOf(c.of).Field(i).Name
			v := reflect.New(reflect.TypeOf(c.of)).Elem()
			before := definedText(t, c.text(v))
			some(v.Field(i))
			if changed := definedText(t, c.text(v)) != before; changed != !slices.Contains([]string{"Line", "Where", "Written"}, field) /* Written is another form of Argv */ {
				t.Errorf("%s: %s of another value changes the definition: %v", name, field, changed)
			}
		}
	}

	d := definition{Prompt: "a < b & c", Bounds: definedBoundsOf(loop.Bounds{Wall: 10 * time.Minute})}
	for _, want := range []string{`"prompt": "a < b & c"`, `"wall": "10m0s"`} {
		if got := definedText(t, d); !strings.Contains(got, want) {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
}

func definedText(t *testing.T, d definition) string {
	t.Helper()
	text, err := d.text()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// some sets a field to a value other than zero.
func some(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		some(v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Struct:
		some(v.Field(0))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]any{"x": 1}))
	case reflect.Interface:
		v.Set(reflect.ValueOf("x"))
	}
}
