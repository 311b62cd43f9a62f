package main

import (
	"os"
	"testing"
)

func TestEveryPartOfTheRepositoryStatesOneVersion(t *testing.T) {
	found, err := findVersions(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agreed(found, ""); err != nil {
		t.Error(err)
	}
	// Four places, and the images in examples and documents.
	if len(found) < 8 {
		t.Errorf("only %d places are looked at: %v", len(found), found)
	}
}

func TestAnotherVersionIsRefusedByItsPlace(t *testing.T) {
	rows := []struct {
		name, tag, refusal string
		found              []stated
	}{
		{"all agree", "v0.2.0", "", []stated{{"Cargo.toml", "0.2.0"}, {"Chart.yaml", "0.2.0"}}},
		{"no tag", "", "", []stated{{"Cargo.toml", "0.2.0"}}},
		{"another chart", "", "Cargo.toml has 0.2.0, but Chart.yaml has 0.1.0; write one version everywhere (docs/guides/releasing.md)",
			[]stated{{"Cargo.toml", "0.2.0"}, {"Chart.yaml", "0.1.0"}}},
		{"another tag", "v0.3.0", "Cargo.toml has 0.2.0, but the tag v0.3.0 has 0.3.0; write one version everywhere (docs/guides/releasing.md)",
			[]stated{{"Cargo.toml", "0.2.0"}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			version, err := agreed(row.found, row.tag)
			switch {
			case row.refusal == "" && (err != nil || version != "0.2.0"):
				t.Errorf("%q, %v", version, err)
			case row.refusal != "" && (err == nil || err.Error() != row.refusal):
				t.Errorf("%v, not %s", err, row.refusal)
			}
		})
	}
}
