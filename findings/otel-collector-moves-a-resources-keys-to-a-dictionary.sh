#!/usr/bin/env bash
# go.opentelemetry.io/collector/pdata/pprofile 0.161.0, with which every Collector reads and writes OTLP profiles: a message comes out with the
# attributes of its resource in another form than it went in. Keys and texts move to the message's dictionary, and the attribute has two indexes
# instead (key_strindex, string_value_strindex; new in opentelemetry-proto 1.10.0). A reader that was built from an earlier version, in which these fields do not
# exist, finds attributes with an empty key and no value, service.name too. Logs, metrics and traces come out as they went in.
#
# Seen: "in: key service.name, value shop; out: key , key_strindex > 0: true, value: StringValueStrindex > 0: true, dictionary has both: true".
# Installs the module in a temporary folder, runs it on one valid message, without phpprof and without a Collector, and fails if it prints anything else.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >go.mod <<'MOD'
module seen

go 1.26

require (
	go.opentelemetry.io/collector/pdata v1.67.0
	go.opentelemetry.io/collector/pdata/pprofile v0.161.0
)
MOD
cat >main.go <<'GO'
package main

import (
	"fmt"

	"go.opentelemetry.io/collector/pdata/pprofile"
)

// field returns the bytes or the number of a field of a protobuf message, the last if there are several.
func field(message []byte, wanted uint64) (bytes []byte, number uint64, all [][]byte) {
	varint := func() (value uint64) {
		for shift := 0; ; shift += 7 {
			octet := message[0]
			message = message[1:]
			value |= uint64(octet&0x7f) << shift
			if octet < 0x80 {
				return
			}
		}
	}
	for len(message) > 0 {
		tag := varint()
		value := varint() // No field of these messages is fixed64.
		if tag&7 == 2 {
			if tag>>3 == wanted {
				bytes = message[:value]
				all = append(all, bytes)
			}
			message = message[value:]
		} else if tag>>3 == wanted {
			number = value
		}
	}
	return
}

func main() {
	profiles := pprofile.NewProfiles()
	resource := profiles.ResourceProfiles().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", "shop")
	profiles.Dictionary().StringTable().Append("")
	message, err := (&pprofile.ProtoMarshaler{}).MarshalProfiles(profiles)
	if err != nil {
		panic(err)
	}
	of_resource, _, _ := field(message, 1)      // ProfilesData.resource_profiles
	attributes, _, _ := field(of_resource, 1)   // ResourceProfiles.resource
	attribute, _, _ := field(attributes, 1)     // Resource.attributes
	key, _, _ := field(attribute, 1)            // KeyValue.key
	_, key_strindex, _ := field(attribute, 3)   // KeyValue.key_strindex
	value, _, _ := field(attribute, 2)          // KeyValue.value
	_, value_strindex, _ := field(value, 8)     // AnyValue.string_value_strindex
	dictionary, _, _ := field(message, 2)       // ProfilesData.dictionary
	_, _, strings := field(dictionary, 5)       // ProfilesDictionary.string_table
	both := string(strings[key_strindex]) == "service.name" && string(strings[value_strindex]) == "shop"
	fmt.Printf("in: key service.name, value shop; out: key %s, key_strindex > 0: %t, value: StringValueStrindex > 0: %t, dictionary has both: %t\n",
		key, key_strindex > 0, value_strindex > 0, both)
}
GO
GOFLAGS=-mod=mod go mod tidy >/dev/null 2>&1
seen=$(GOFLAGS=-mod=mod go run .)
echo "$seen"
[ "$seen" = "in: key service.name, value shop; out: key , key_strindex > 0: true, value: StringValueStrindex > 0: true, dictionary has both: true" ]
