# Sourced by what builds the product: its images, by name.
#
# Does: say which program each image has, in which profile and with which features it is built, and what the image is told.
# Invariant: an image has one program, which lies in its root and is started.
# shellcheck shell=bash

# shellcheck disable=SC2034
product=(phpprof operator kubectl-phpprof)

# program_of NAME: the crate, the profile and the flags that its program is built with, as words.
program_of() {
  case $1 in
    # As small as can be, because each node that it samples on pulls it; the flame graph page is the plugin's.
    phpprof) echo phpprof dist --no-default-features ;;
    operator) echo phpprof-operator image ;;
    kubectl-phpprof) echo kubectl-phpprof image ;;
    *) echo "no image of the product is called $1" >&2 && return 2 ;;
  esac
}

# user_of NAME: the flags that say whom its program runs as. The sampler's user is its target's: the operator says it for each container.
user_of() {
  case $1 in
    phpprof) ;;
    *) echo -user 65532:65532 ;;
  esac
}
