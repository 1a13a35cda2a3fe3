# SPDX-License-Identifier: GPL-2.0-or-later
"""An icon in Plasma's system tray: its tooltip names the foreground app, and a click pauses
Limelight for ten minutes or resumes. Needs PyQt6: docs/integrator/dbus.md."""

import sys

from PyQt6.QtCore import QMetaType, pyqtSlot
from PyQt6.QtDBus import QDBusArgument, QDBusConnection, QDBusMessage, QDBusServiceWatcher
from PyQt6.QtGui import QIcon
from PyQt6.QtWidgets import QApplication, QSystemTrayIcon

NAME, PATH = "org.limelight.Limelight1", "/org/limelight/Limelight1"


def call(method, *arguments):
    message = QDBusMessage.createMethodCall(NAME, PATH, NAME, method)
    message.setArguments(arguments)
    message.setInteractiveAuthorizationAllowed(True)
    QDBusConnection.systemBus().asyncCall(message)


class Tray(QSystemTrayIcon):
    def __init__(self):
        super().__init__()
        bus = QDBusConnection.systemBus()
        bus.connect(NAME, PATH, NAME, "ForegroundChanged", self.show_app)
        bus.connect(NAME, PATH, NAME, "PauseChanged", self.show_pause)
        # A restarted limelight-bus knows no subscribers.
        self.watcher = QDBusServiceWatcher(NAME, bus)
        self.watcher.serviceRegistered.connect(lambda: call("Subscribe"))
        call("Subscribe")
        self.activated.connect(self.toggle)

    @pyqtSlot(QDBusMessage)
    def show_app(self, message):
        self.setToolTip(message.arguments()[0].get("Name", "no app"))

    @pyqtSlot(QDBusMessage)
    def show_pause(self, message):
        self.paused = message.arguments()[0]
        self.setIcon(QIcon.fromTheme(f"media-playback-{'pause' if self.paused else 'start'}"))
        self.show()

    def toggle(self):
        seconds = QDBusArgument(600, QMetaType.Type.UInt.value)
        call("Resume") if self.paused else call("Pause", seconds)


app = QApplication(sys.argv)
tray = Tray()
sys.exit(app.exec())
