#!/usr/bin/env bash
# Fetch Beam's Flink job server, of the version of Beam that is installed, to the file named; nothing when it is there.
# Java and Maven are installed from the system's packages where they are missing and apt-get exists.
set -euo pipefail
jar=$1
flink=${FLINK_VERSION:-1.20}

if ! { command -v java && command -v mvn; } >/dev/null && command -v apt-get >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends openjdk-17-jre-headless maven >/dev/null
fi
[ -s "$jar" ] && exit 0

beam=$("${PYTHON:-python3}" -c 'from importlib.metadata import version; print(version("apache-beam"))')
name=beam-runners-flink-$flink-job-server
folder=$(dirname "$jar")
mkdir -p "$folder"
if ! mvn -B -q -U dependency:copy -Dartifact="org.apache.beam:$name:$beam" -DoutputDirectory="$folder"; then
  echo "org.apache.beam:$name:$beam cannot be had from Maven's registry. FLINK_VERSION chooses another Flink;" >&2
  echo "FLINK_JOB_SERVER names a jar that is on this machine already." >&2
  exit 1
fi
mv "$folder/$name-$beam.jar" "$jar"
